# SPDX-License-Identifier: Apache-2.0
"""Volumes as RBD images of a Ceph cluster, each attachment with a cephx user of its own.

The user's capabilities reach one image, for reading alone where the attachment is read-only, and
its key is in the connection info of that attachment and nowhere else.  All state is in the
cluster: users are the list of exports.

A user is revoked in three steps: its capabilities are withdrawn, its clients are blocklisted, each
by its address and nonce, and then it is deleted.  An interrupted revoke is recognized by the
capabilities that are left, see users.no_capabilities().
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import dataclasses
import re
import time
from typing import Any

from oslo_config import cfg

from attachd import exception
from attachd.drivers import abilities, base, existing
from attachd.drivers.rbd import host_key, image_clones, lock_owner, users
from attachd.drivers.rbd.clients import ClientRecords, RememberByRecord
from attachd.drivers.rbd.cluster import Cluster, Session, blocklist_each
from attachd.drivers.rbd.existing import ExistingImages
from attachd.drivers.rbd.existing_snapshots import ExistingSnapshots
from attachd.drivers.rbd.header_check import HeaderCheck
from attachd.drivers.rbd.image_clients import WATCH_TIMEOUT, ImageClients, Watch
from attachd.drivers.rbd.image_data import ImageAccess
from attachd.drivers.rbd.images import GIB, Images, Pools
from attachd.drivers.rbd.resizing import OBJECT_BYTES, Resizing
from attachd.drivers.rbd.snapshots import ImageSnapshots
from attachd.drivers.rbd.watch_requests import WatchRequests
from attachd.linux import sandbox

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")
_POLL_INTERVAL = 0.05
_CAPABILITIES = {"multiattach": True, "thin_provisioning": True, "online_clone": True}

IsLeaving = Callable[[str | None], bool]
"""Returns whether the clients of a user are to be ended; None: those of an unknown one."""


def _make_images(
    cluster: Cluster,
    naming: users.Naming,
    options: cfg.ConfigOpts.GroupAttr,
    requests: WatchRequests,
) -> dict[str, Images]:
    resizing = Resizing(cluster, naming, options)
    own = (cluster.entity, resizing.entity)
    made = {}
    for pool in naming.pools:
        clients = ImageClients(cluster, options, requests, pool, own)
        made[pool] = Images(cluster, naming, resizing, clients, pool)
    return made


class RbdDriver(
    base.Driver,
    abilities.Clone,
    abilities.OnlineExtend,
    abilities.Evict,
    ImageAccess,
    image_clones.ImageClones,
    ImageSnapshots,
    RememberByRecord,
    existing.ManageByName,
):
    """Images of some pools whose names have one prefix.

    Where other users of the cluster may use a pool as well, hosts that have their keys reach all
    its images: then the driver promises less.

    It ends the clients that it finds, by their sessions with monitors and by their watches.  A
    manipulated client has neither and keeps its connections to OSDs, which cannot list them: so
    the end of sessions is not promised.  One that hangs has neither after some minutes, and is
    ended by its address, which was recorded.
    """

    VENDOR = "Ceph"
    # Each attachment has a client, a user and a key of its own.
    SHARED_TARGETS = False
    PARALLEL_GRANTS = True
    HOSTS_WRITE_SIZES = True  # in headers
    LIBVIRT_SECRETS = True

    OPTIONS = (
        cfg.ListOpt(
            "rbd_pools",
            default=["volumes"],
            deprecated_name="rbd_pool",
            help="The pools for the images: the scheduler selects one for each volume, also by "
            "the extra spec pool_name of its type. Other services may have images in them.",
        ),
        cfg.StrOpt(
            "rbd_ceph_conf",
            default="/etc/ceph/ceph.conf",
            help="The configuration file of Ceph, with the addresses of the monitors and, if it "
            "is not at Ceph's default place, the keyring of rbd_user.",
        ),
        cfg.StrOpt(
            "rbd_user",
            default="attachd",
            help="The cephx user of the manager, without 'client.'. It needs the capabilities "
            "that the administration guide lists.",
        ),
        cfg.StrOpt(
            "rbd_prefix",
            default="attachd-",
            help="What the names of images and of the cephx users of attachments begin with; the "
            "id of the volume, or of the attachment, follows. Each backend of a pool, and each "
            "attachd of a cluster, needs one of its own.",
        ),
        cfg.IntOpt(
            "rbd_timeout",
            default=30,
            min=1,
            help="Seconds that monitors and OSDs have for one request, and hosts for losing an "
            "image that was revoked.",
        ),
        *host_key.OPTIONS,
        *image_clones.OPTIONS,
        cfg.StrOpt(
            "rbd_ms_mode",
            default="",
            choices=[
                ("", "What the clients and the cluster agree on."),
                ("crc", "Checksums, no encryption."),
                ("secure", "Encryption, of the manager's connections and of those of hosts."),
            ],
            help="How data is protected on the network, from the second version of Ceph's "
            "protocol on.",
        ),
    )

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        self._naming = users.Naming(self.options.rbd_pools, self.options.rbd_prefix)
        self._cluster = Cluster(self.options)
        self._watch_requests = WatchRequests(self._cluster, self.options)
        images = _make_images(self._cluster, self._naming, self.options, self._watch_requests)
        self._pools = Pools(name, images)
        self._host_key = host_key.HostKey(self._cluster, self.options)
        self._headers = HeaderCheck(self._pools, self._naming, self._users)
        self.clients = ClientRecords(self._cluster, self._naming, self._pools)
        self.existing_snapshots = ExistingSnapshots(
            self._cluster, self._naming, self._pools, self._headers
        )
        self.existing = ExistingImages(
            self._cluster, self._naming, self._pools, self._headers.check_releasable
        )

    def setup(self) -> None:
        """Check the options, the packages, the cluster, the pools and the rights."""
        pools, prefix = self.options.rbd_pools, self.options.rbd_prefix
        for option, values in (("rbd_pools", pools), ("rbd_prefix", [prefix])):
            if not values or not all(map(_NAME.fullmatch, values)):
                raise exception.BackendError(
                    f"{option} must have letters, digits, dots, dashes and underscores, and begin "
                    "with a letter or a digit.",
                    final=True,
                )
        self._host_key.check()
        if missing := sandbox.missing_requirements():
            raise exception.BackendError(f"Missing: {', '.join(missing)}.", final=True)
        self.close()
        self.storage_ids = self._cluster.check()
        for images in self._pools:
            images.clients.check()
        self.check_image_pools()
        own = not any(
            users.may_use(pools, caps)
            for entity, caps in self._cluster.users().items()
            if entity.startswith("client.") and entity != self._cluster.entity
        )
        # A client by the key of hosts may be that of any host, and is not remembered.
        self.has_host_key = self._host_key.is_configured()
        each_known = not self.has_host_key
        self.promises = base.Promises(
            per_host_access=own,
            read_only_enforced=True,
            frozen_host_cut_off=each_known,
            session_listing=each_known,
        )

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._watch_requests.close()
        self._cluster.close()

    def get_stats(self) -> base.BackendStats:
        """Return what the pools have and can take, after replication.

        Without a ceph-mgr that has ever run the cluster does not know it: then nothing is free.
        A single pool is not reported beside the backend.
        """
        listed = self._cluster.read("df", detail="detail")["pools"]
        found = {pool["name"]: pool["stats"] for pool in listed}
        pools = [_pool_stats(images, found.get(images.pool, {})) for images in self._pools]
        stats = base.BackendStats.from_pools("ceph", pools, _CAPABILITIES)
        return stats if len(pools) > 1 else dataclasses.replace(stats, pools=())

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create a thin image, with the features that the cluster has by default."""
        return self._pools.find(volume).create(volume)

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Copy a snapshot of the image, which shares no data with its source in the end."""
        images = self._pools.find(source)
        if images.find(volume.id) is None:
            self._headers.check(source)
        return images.clone(volume, source)

    def delete(self, volume: base.VolumeRef) -> None:
        """Delete the image; refused while it has users, or a client has it open."""
        self._headers.check_not_exported(volume)
        self._pools.find(volume).delete(volume)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]  # noqa: ARG002
    ) -> None:  # fmt: skip
        """Extend the image; Ceph notifies the clients that have it open."""
        self._headers.check(volume, size_gib)

        def list_own() -> set[str]:
            return {user.entity for user in self._users(volume.id)} | {self._naming.headers_entity}

        images = self._pools.find(volume)
        lock_owner.end_dead(self._cluster, images, volume.id, list_own)
        images.extend(self._naming.image(volume.id), size_gib)
        # Its size is now the new one, unless a host has changed it.
        size_gib = max(size_gib, volume.size_gib)
        self._headers.check(dataclasses.replace(volume, size_gib=size_gib))

    def grant(
        self, volume: base.VolumeRef, export: base.Export
    ) -> base.ConnectionInfo | base.WithSecrets[base.ConnectionInfo]:
        """Create the user of the attachment; the key is the monitors' and stays the same.

        :returns: "rbd", for os-brick's RBDConnector, or without the key for Nova's libvirt driver
        """
        images = self._pools.find(volume)
        stored = self._headers.check(volume)
        image = users.Image(images.pool, self._naming.image(volume.id), stored["id"])
        if export.key_holder == "host":
            info = self._connection_info(image, volume, export)
            info["data"]["image"] = stored
            return self._host_key.connect(info)
        entity = self._naming.entity(export.attachment_id)
        caps = users.as_arguments(users.capabilities(image, export.mode))
        key = self._cluster.create_user(entity, caps)
        if key is None:
            # It exists for the other mode, or is half revoked, or was changed.
            self._cluster.set_capabilities(entity, caps)
            self._end_clients(images, volume.id, [entity], lambda user: user == entity)
            key = self._cluster.create_user(entity, caps)
        if key is None:
            raise exception.BackendError(f"User {entity} does not keep its capabilities.")
        info = self._connection_info(image, volume, export)
        info["data"]["image"] = stored
        if export.key_holder == "agent":
            return base.WithSecrets(info, {"key": key})
        info["data"]["keyring"] = f"[{entity}]\n\tkey = {key}\n"
        return info

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Withdraw the user's capabilities, end its clients, and delete it."""
        if export.key_holder == "host":
            user = self._host_key.get_user(export)
            staying = sum(other.key_holder == "host" for other in others)
            images = self._pools.find(volume)
            if staying:
                self._host_key.wait_until_ended(images, volume.id, user, staying)
            else:
                # Beside attachments with users of their own, an unknown client may be theirs.
                self._end_clients(
                    images, volume.id, (), lambda it: it == user or not (it or others)
                )
            return
        entity = self._naming.entity(export.attachment_id)
        self._revoke(volume, [entity], {self._naming.entity(it.attachment_id) for it in others})

    def list_exports(self) -> Iterable[base.BackendExport]:
        """List the users whose capabilities name a volume, and clients of deleted users."""
        found = self._users()
        sessions, blocklisted = self._cluster.sessions(), self._cluster.blocklisted()
        known = {user.entity for user in found}
        connected = {session.entity for session in sessions} & known
        strays = {
            session.client_id: attachment_id
            for session in sessions
            if session.entity not in known and not blocklisted.issuperset(session.addresses)
            if (attachment_id := self._naming.attachment_id(session.entity))
        }
        listed = [*map(_listed, found, [user.entity in connected for user in found])]
        for images in self._pools if strays else ():
            for volume_id in images.sizes():
                watching = {watch.client_id for watch in images.watches(volume_id)}
                if ids := {strays[client] for client in watching & strays.keys()}:
                    listed.append(base.BackendExport(volume_id, None, sessions=frozenset(ids)))
        return _merged(listed)

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return a holder for each attachment with a user of its own."""
        return _merged(
            base.BackendExport(volume.id, export.mode, frozenset({export.attachment_id}))
            for export in exports
            if export.key_holder != "host"
        )

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Revoke all users of the volume but those of ``staying``, with other capabilities or not.

        A user in another mode than that of its attachment is revoked as well.
        """
        modes = {self._naming.entity(export.attachment_id): export.mode for export in staying}
        leaving = [
            user.entity
            for user in self._users(volume.id)
            if user.mode is None or modes.get(user.entity) != user.mode
        ]
        self._revoke(volume, leaving, modes.keys() - set(leaving), strays=True)

    def list_orphans(self) -> Iterable[base.Orphan]:
        """List users with the prefix whose capabilities name no volume of any backend."""
        for entity, caps in self._cluster.users().items():
            if self._naming.attachment_id(entity) and not users.names_image(caps):
                yield base.Orphan(f"cephx user {entity}", f"Delete it: 'ceph auth rm {entity}'.")
        for images in self._pools:
            yield from images.find_stray_data()
        for name in (name for images in self._pools for name in images.list_copies()):
            yield base.Orphan(
                f"image {name}, a copy that is not complete",
                "None while the manager copies it; it is removed with the volume.",
            )

    def list_volumes(self) -> Mapping[str, int]:
        """List the images with the prefix."""
        return self._pools.sizes()

    def has_volume(self, volume: base.VolumeRef) -> bool:
        """Return whether the image of a volume is there."""
        return self._pools.find(volume).find(volume.id) is not None

    def _users(self, volume_id: str | None = None) -> list[users.User]:
        """List the users of the backend, or of one volume."""
        every = self._cluster.users().items()
        found = [user for entity, caps in every if (user := self._naming.user(entity, caps))]
        return [user for user in found if volume_id in {None, user.volume_id}]

    def _revoke(
        self,
        volume: base.VolumeRef,
        leaving: Collection[str],
        staying: Collection[str],
        *,
        strays: bool = False,
    ) -> None:
        """Revoke users, and end their clients.

        :param strays: also clients of users that were deleted, and of unknown ones
        """
        images = self._pools.find(volume)
        caps = users.no_capabilities(images.pool, self._naming.image(volume.id))
        for entity in leaving:
            self._cluster.set_capabilities(entity, users.as_arguments(caps))

        def is_leaving(user: str | None) -> bool:
            if user is None:
                return not staying
            is_ours = self._naming.attachment_id(user) is not None
            return user in leaving or (strays and is_ours and user not in staying)

        self._end_clients(images, volume.id, leaving, is_leaving)
        for entity in leaving:
            self._cluster.delete_user(entity)

    def _end_clients(
        self, images: Images, volume_id: str, leaving: Collection[str], is_leaving: IsLeaving
    ) -> None:
        """Blocklist the clients of users, and those that have the image open, until none has.

        A client for reading alone does not watch the image: it is known by its session with a
        monitor.  One that hangs loses its watch, and later its session: _find_hung_owner() finds
        some of them, and a fence those that were recorded, see clients.py.

        :param leaving: all of whose clients are ended
        :param is_leaving: of a client that has the image open
        :raises BackendError: a client stays, or whose it is stays unknown
        """
        deadline = time.monotonic() + max(self.options.rbd_timeout, WATCH_TIMEOUT)
        owner = images.lock_owner(volume_id)
        sessions = self._cluster.sessions()
        connected = [session for session in sessions if session.entity in leaving]
        ending = {address for session in connected for address in session.addresses}
        ending |= _find_hung_owner(images, volume_id, owner, sessions)
        ended: set[str] = set()
        while True:
            owners = {session.client_id: session.entity for session in sessions}
            watches = [(it, owners.get(it.client_id)) for it in images.watches(volume_id)]
            watching = {watch.address for watch, user in watches if is_leaving(user)}
            unknown = {watch.address for watch, user in watches if user is None} - watching
            blocklist_each(self._cluster, (ending | watching) - ended)
            ended |= ending | watching
            if not watching and not unknown:
                return
            if time.monotonic() > deadline:
                raise exception.BackendError(
                    f"Volume {volume_id}: the client {min(watching | unknown)} still has its "
                    "image open."
                )
            time.sleep(_POLL_INTERVAL)
            sessions = self._cluster.sessions()

    def _connection_info(
        self, image: users.Image, volume: base.VolumeRef, export: base.Export
    ) -> base.ConnectionInfo:
        entity = self._naming.entity(export.attachment_id)
        monitors = self._cluster.monitors()
        data: dict[str, Any] = {
            "name": f"{image.pool}/{image.name}",
            "hosts": [host for host, _ in monitors],
            "ports": [port for _, port in monitors],
            "cluster_name": "ceph",
            "auth_enabled": True,
            "auth_username": entity.removeprefix("client."),
            "secret_type": "ceph",
            "secret_uuid": export.attachment_id if export.key_holder == "agent" else None,
            "volume_id": volume.id,
            "access_mode": export.mode,
            "discard": True,
        }
        if self.options.rbd_ms_mode:
            data["ms_mode"] = self.options.rbd_ms_mode
        return {"driver_volume_type": "rbd", "data": data}


def _find_hung_owner(
    images: Images,
    volume_id: str,
    owner: Watch | None,
    sessions: Sequence[Session],
) -> set[str]:
    """Return the address of the lock's owner if it has neither a watch nor a session.

    It has died, or hangs and goes on writing when it wakes up.  Whose client it is cannot be
    known; but each other writer of the image would blocklist it as well, to break its lock.

    :param owner: as it was before ``sessions`` were read
    """
    if owner is None or any(session.client_id == owner.client_id for session in sessions):
        return set()
    if any(owner.address in session.addresses for session in sessions):
        return set()  # The header names a client of another user.
    watching = {watch.client_id for watch in images.watches(volume_id)}
    if owner.client_id in watching or owner != images.lock_owner(volume_id):
        return set()  # It has lost its monitor alone, or closed the image meanwhile.
    return {owner.address}


def _pool_stats(images: Images, stats: Mapping[str, int]) -> base.PoolStats:
    """Return the capacity of a pool, which its quota limits, too.

    :param stats: of ``ceph df detail``, in bytes
    """
    stored, free = stats.get("stored", 0), stats.get("max_avail", 0)
    if quota := stats.get("quota_bytes", 0):
        free = min(free, max(quota - stored, 0))
    if quota := stats.get("quota_objects", 0):
        free = min(free, max(quota - stats.get("objects", 0), 0) * OBJECT_BYTES)
    allocated = sum(images.sizes().values()) / GIB
    return base.PoolStats(images.pool, (free + stored) / GIB, free / GIB, allocated)


def _listed(user: users.User, connected: bool) -> base.BackendExport:  # noqa: FBT001  map()
    ids = frozenset({user.attachment_id})
    sessions = ids if connected else frozenset()
    if user.mode:
        return base.BackendExport(user.volume_id, user.mode, ids, sessions=sessions)
    what = "whose access is being revoked" if user.withdrawn else "whose capabilities were changed"
    part = f"the cephx user {user.entity}, {what}"
    mode: base.AccessMode | None = None if user.withdrawn else "rw"
    return base.BackendExport(
        user.volume_id, mode, frozenset() if user.withdrawn else ids, frozenset({part}), sessions
    )


def _merged(exports: Iterable[base.BackendExport]) -> list[base.BackendExport]:
    """Return one export for each volume and mode."""
    found: dict[tuple[str, base.AccessMode | None], base.BackendExport] = {}
    for export in exports:
        key = (export.volume_id, export.mode)
        same = found.get(key, base.BackendExport(*key))
        found[key] = base.BackendExport(
            *key,
            same.holders | export.holders,
            same.parts | export.parts,
            same.sessions | export.sessions,
        )
    return list(found.values())

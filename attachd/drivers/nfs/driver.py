# SPDX-License-Identifier: Apache-2.0
"""Volumes as files on an NFS share, which hosts mount.

``volumes/<volume id>`` on the share is a volume, ``volumes/manageable`` has the files that may
become volumes, ``volumes/snapshots`` the snapshots, and ``exports/<volume id>/<attachment id>``
is a hard link to a volume, the name that the host of the attachment gets.  A revoke removes that
name.  It
does not keep away a host that has the file open or looks for the file's other names: the server
decides by its exports which hosts reach the share, and they reach all of it.
"""

from collections.abc import Iterable, Mapping, Sequence
import itertools
from typing import Any, Final

from oslo_config import cfg

from attachd import exception
from attachd.drivers import abilities, base, existing, linked_files
from attachd.drivers.nfs.pools import ExistingFiles, Pools
from attachd.drivers.nfs.share_data import ShareAccess
from attachd.drivers.nfs.snapshots import ShareSnapshots

HOST_MOUNT_POINT_BASE: Final = "/run/attachd/mnt"
"""The directory in which os-brick mounts shares on hosts, except those of Compute."""


class NfsDriver(
    base.Driver,
    ShareSnapshots,
    ShareAccess,
    abilities.Clone,
    abilities.OnlineExtend,
    abilities.Evict,
    existing.ManageByName,
):
    """Sparse files on one share, or on several as pools.

    NFS has no read-only access for a single file: the mode "ro" is refused.  A volume that is
    attached is not cloned: the times of change that this machine sees may be old, so that it could
    miss writes of other hosts.
    """

    # The server knows hosts by their addresses, and no single files.
    promises = base.Promises()
    # If two processes of a host mount a share at the same time, os-brick fails in one of them.
    SHARED_TARGETS = True
    HOSTS_WRITE_SIZES = True  # of all files of a share
    OPTIONS = (
        cfg.StrOpt(
            "nfs_share",
            default="",
            help="The share for the volumes, as SERVER:/PATH; each backend needs one of its own. "
            "Its pool has the name of the backend.",
        ),
        cfg.DictOpt(
            "nfs_pools",
            default={},
            help="Further shares, each a pool, as NAME:SERVER:/PATH. The name of a pool that has "
            "volumes must stay.",
        ),
        cfg.StrOpt(
            "nfs_mount_point",
            help="The directory where the share is mounted already, such as by /etc/fstab. "
            "None: the manager mounts it, for which it has to be root.",
        ),
        cfg.DictOpt(
            "nfs_pool_mount_points",
            default={},
            help="The directories where shares of nfs_pools are mounted already, as "
            "NAME:/DIRECTORY. The manager mounts the other ones.",
        ),
        cfg.StrOpt(
            "nfs_mount_point_base",
            default="$state_path/mnt",
            help="The directory in which the manager mounts shares.",
        ),
        cfg.StrOpt(
            "nfs_mount_options",
            default="softerr,lookupcache=none,actimeo=1,retry=0",
            help="Options of mount(8) with which the manager mounts shares. The default needs "
            "Linux 5.1: requests to a server that is away end with an error, and what other "
            "managers change is seen after a second.",
        ),
        cfg.StrOpt(
            "nfs_host_mount_options",
            default="",
            help="Options of mount(8) that hosts get, such as vers=4.2,hard. Do not let hosts "
            "mount with soft: servers would lose data.",
        ),
        cfg.FloatOpt(
            "nfs_timeout",
            default=30.0,
            min=1.0,
            help="Seconds that the share may take for one step; then the operation is aborted, "
            "and its process killed.",
        ),
    )

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        self.pools = Pools(name, self.options)
        self.existing = ExistingFiles(self.pools)
        self.existing_snapshots = ExistingFiles(self.pools, "snapshot")
        self._discards: dict[str, bool] = {}

    def setup(self) -> None:
        """Mount the shares, and create their directories."""
        self.pools.check()
        self.pools.call_each("prepare")
        self._discards = dict(
            zip(self.pools.shares, self.pools.call_each("can_discard"), strict=True)
        )
        # Not what is in a share: hosts can write to all of it.
        self.storage_ids = {pool: share.name for pool, share in self.pools.shares.items()}

    def close(self) -> None:
        """End the processes of the shares, and unmount those that the manager has mounted."""
        self.pools.close()

    def get_stats(self) -> base.BackendStats:
        """Return the sizes of the shares' file systems."""
        return self.pools.stats(
            {"multiattach": True, "online_clone": False, "thin_provisioning": True}
        )

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create the volume's file."""
        self.pools.share_of(volume).call("create", volume.id, volume.size_gib)
        return {}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Copy the source's file; refused while it is exported."""
        self.pools.share_of(volume).call("clone", volume.id, volume.size_gib, source.id)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Delete the volume's file; refused while it is exported."""
        self.pools.share_of(volume).call("delete", volume.id)

    def extend(
        self,
        volume: base.VolumeRef,
        size_gib: int,
        exports: Sequence[base.Export],  # noqa: ARG002  hosts see the file grow
    ) -> None:
        """Extend the file."""
        self.pools.share_of(volume).call("extend", volume.id, size_gib)

    def check_access_mode(self, mode: base.AccessMode) -> None:
        """Refuse "ro": each host that mounts the share may write to its files."""
        if mode == "ro":
            raise exception.InvalidInput(
                field="mode",
                value=mode,
                reason=f"Backend {self.name} is an NFS share, whose files accept writes of each "
                "host. Attach with mode rw, or use a backend with read_only_enforced.",
            )

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Link the file for one attachment.

        :returns: "nfs", as os-brick's RemoteFsConnector and Compute take it

        Source: os-brick, RemoteFsConnector; Nova, LibvirtNFSVolumeDriver.
        """
        share = self.pools.share_of(volume)
        try:
            self.check_access_mode(export.mode)
        except exception.InvalidInput as error:
            granted = [volume.id, export.attachment_id] in share.call("links", volume.id)
            raise exception.BackendError(f"{error}", final=not granted) from error
        share.call("link", volume.id, export.attachment_id)
        data = {
            "export": share.name,
            "name": f"{linked_files.EXPORTS}/{volume.id}/{export.attachment_id}",
            "format": "raw",
            "mount_point_base": HOST_MOUNT_POINT_BASE,
            "volume_id": volume.id,
            "access_mode": export.mode,
            "discard": self._discards.get(volume.pool or self.name, False),
        }
        if options := self.options.nfs_host_mount_options:
            data["options"] = f"-o {options}"
        return {"driver_volume_type": "nfs", "data": data}

    def revoke(
        self,
        volume: base.VolumeRef,
        export: base.Export,
        others: Sequence[base.Export],
    ) -> None:
        """Remove the link; refused if there are no others, and a host has a lock on the file.

        QEMU with the kernel's NFS client has one, also on hosts of Compute.
        """
        ids = [other.attachment_id for other in others]
        self.pools.share_of(volume).call("unlink", volume.id, export.attachment_id, ids)

    def list_exports(self) -> Iterable[base.BackendExport]:
        """List the links; open files of other hosts cannot be listed."""
        return _listed(self.pools.call_each("links", ""))

    def list_volume_exports(self, volume: base.VolumeRef) -> Iterable[base.BackendExport]:
        """List the links of the volume."""
        return _listed(self.pools.call_each("links", volume.id))

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return a link for each export."""
        return _listed([[(volume.id, export.attachment_id) for export in exports]])

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Remove the links of exports that are not in ``staying``; hosts keep what they opened."""
        kept = [item.attachment_id for item in staying]
        self.pools.call_each("unlink_except", volume.id, kept)

    def list_volumes(self) -> Mapping[str, int]:
        """List the volumes' files."""
        return dict(itertools.chain(*(sizes.items() for sizes in self.pools.call_each("sizes"))))

    def find_size(self, volume: base.VolumeRef) -> int | None:
        """Return the size of the file of a volume."""
        shares = [self.pools.share_of(volume)] if volume.pool else self.pools.shares.values()
        found = (share.call("size", volume.id) for share in shares)
        return next((int(size) for size in found if size is not None), None)


def _listed(found: Iterable[Iterable[Sequence[str]]]) -> list[base.BackendExport]:
    """Group the links of shares by volume; each accepts writes."""
    holders: dict[str, set[str]] = {}
    for volume_id, attachment_id in itertools.chain(*found):
        holders.setdefault(volume_id, set()).add(attachment_id)
    return [base.BackendExport(key, "rw", frozenset(ids)) for key, ids in holders.items()]

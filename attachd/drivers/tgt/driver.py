# SPDX-License-Identifier: Apache-2.0
"""Volumes over iSCSI from sparse files of this machine, by tgtd, the target daemon in user space.

A volume has a target, created for its first export and removed with its last, and a second one
ending in "-ro" for read-only exports; both show the same file under the same world-wide name. A
host logs in with its initiator's name and a CHAP secret, one for each volume and mode: it logs in
once, however many of its servers use the volume.  An export with a connection of its own has a
target of its own, whose unit changes its mode under the session.

tgtd keeps no state: after a restart it is empty, and the manager, which sees a new
:meth:`boot_id`, grants all exports again.
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import dataclasses
import functools
from pathlib import Path
import re
import threading
from typing import Any
import weakref

from oslo_config import cfg

from attachd import exception
from attachd.drivers import (
    abilities,
    base,
    existing,
    existing_files,
    folder_identity,
    iscsi,
    snapshot_files,
    sparse,
)
from attachd.drivers.tgt import client, listing, parser
from attachd.drivers.tgt.targets import TargetManager

_IQN_PREFIX = re.compile(r"iqn\.\d{4}-\d{2}\.[a-z0-9][a-z0-9.-]*:[a-z0-9.:-]*")


class VolumeLocks:
    """Locks of the volumes that threads of this process use.

    A target is created with the first grant, and its accounts have places that change with each
    removal, so that only one thread at a time changes the targets of a volume.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._by_id: weakref.WeakValueDictionary[str, _Lock] = weakref.WeakValueDictionary()

    @contextlib.contextmanager
    def held(self, volume_id: str) -> Iterator[None]:
        """Hold the lock of a volume for the block."""
        with self._mutex:
            lock = self._by_id.setdefault(volume_id, _Lock())
        with lock.mutex:
            yield


class _Lock:
    def __init__(self) -> None:
        self.mutex = threading.Lock()


class TgtDriver(
    sparse.FilesDriver,
    snapshot_files.FileSnapshots,
    abilities.Clone,
    abilities.OnlineExtend,
    abilities.SwitchMode,
    abilities.Evict,
    existing.ManageByName,
):
    """iSCSI targets of one tgtd, which must run as the same user and group as the manager.

    Besides the accounts of hosts tgtd has the *sentinel*, an account of the driver with an unknown
    secret.  It is the first account of each target, so that no target ever accepts a host without
    CHAP, and its name changes with each start of tgtd: it is the boot id.
    """

    existing: existing_files.ExistingFiles
    # Each volume has a target of its own, and sessions of its own.
    SHARED_TARGETS = False
    KERNEL_DEVICES = True
    PARALLEL_GRANTS = True
    promises = base.Promises(
        per_host_access=True,
        read_only_enforced=True,
        session_end=True,
        complete_listing=True,
        detach_proof=True,
        session_listing=True,
    )

    OPTIONS = (
        cfg.StrOpt(
            "tgt_volumes_dir",
            default="$state_path/tgt",
            help="The directory for the volumes' files; each backend needs one of its own.",
        ),
        cfg.StrOpt(
            "tgt_portal",
            default="127.0.0.1:3260",
            help="ADDRESS:PORT where hosts reach tgtd; IPv6 addresses in brackets.",
        ),
        cfg.ListOpt(
            "tgt_more_portals",
            default=[],
            help="Further ADDRESS:PORT where hosts reach the same tgtd, for hosts with multipath, "
            "and for those that do not reach tgt_portal.",
        ),
        cfg.StrOpt(
            "tgt_iqn_prefix",
            default=f"{iscsi.PREFIX}volume-",
            help="What the names of targets begin with; the id of the volume follows.",
        ),
        cfg.StrOpt(
            "tgt_control_socket",
            default="/var/run/tgtd/socket",
            help="The control socket of tgtd without its number, as in TGT_IPC_SOCKET.",
        ),
        cfg.IntOpt(
            "tgt_control_port",
            default=0,
            min=0,
            help="The number of the control socket, as in tgtd --control-port.",
        ),
        cfg.FloatOpt(
            "tgt_timeout",
            default=10.0,
            min=0.1,
            help="Seconds that tgtd has for one request, and for ending a host's sessions.",
        ),
    )

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        options = self.options
        self._prefix: str = options.tgt_iqn_prefix
        self._locks = VolumeLocks()
        self._volumes = sparse.SparseFiles(Path(options.tgt_volumes_dir).absolute())
        self.snapshots = snapshot_files.SnapshotFiles(self._volumes)
        self.existing_snapshots = snapshot_files.existing_snapshots(self.snapshots)
        self.existing = existing_files.ExistingFiles(
            self._volumes, lambda volume: _check_not_exported(volume, self._targets(volume))
        )
        self._tgtd = client.Tgtd(
            options.tgt_control_socket, options.tgt_control_port, options.tgt_timeout
        )
        self._sentinel_prefix = f"{listing.SENTINEL_PREFIX}{re.sub('[^0-9A-Za-z_-]', '_', name)}."
        self._target_manager = TargetManager(self._tgtd, self._sentinel_prefix)
        self._listed = functools.partial(
            listing.list_exports,
            prefix=self._prefix,
            sentinel_prefix=self._sentinel_prefix,
            folder=self._volumes.folder,
        )

    def setup(self) -> None:
        """Create the directory, and check that tgtd answers and accepts secrets."""
        _check_options(self.options)
        self._volumes.prepare()
        self.existing.prepare()
        self.snapshots.prepare()
        self.existing_snapshots.prepare()
        self.storage_ids = {self.name: folder_identity.read_identity(self._volumes.folder)}
        self._tgtd.check()
        self._target_manager = dataclasses.replace(
            self._target_manager, discards=self._volumes.can_discard()
        )
        self._target_manager.ensure_sentinel()

    def get_stats(self) -> base.BackendStats:
        """Return the size of the directory's file system."""
        return self._volumes.stats("iSCSI")

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create the volume's file; tgtd gets it with the first export."""
        self._volumes.create(volume)
        return {}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Copy the source's file, as it is at one moment."""
        self._volumes.clone(volume, source.id)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Delete the volume's file; refused while a target shows it."""
        _check_not_exported(volume, self._targets(volume))
        self._volumes.delete(volume.id)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]  # noqa: ARG002
    ) -> None:  # fmt: skip
        """Extend the file and let its targets open it again."""
        self._volumes.extend(volume.id, size_gib)
        for target in self._targets(volume):
            self._target_manager.renew(target, self._volumes.existing(volume.id), size_gib)

    def check_connector(self, connector: base.Connector) -> None:
        """Refuse a host without an iSCSI name."""
        if not iscsi.is_initiator(name := connector.get("initiator")):
            raise iscsi.invalid_initiator(name)

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Allow an initiator to log in to the volume's target with the secret of its session.

        :returns: "iscsi", for os-brick's ISCSIConnector
        """
        initiator = iscsi.initiator(export)
        iscsi.check_credentials(export, initiator)
        name = iscsi.target_of(self._prefix, volume.id, export)
        with self._locks.held(volume.id):
            path = self._volumes.existing(volume.id)
            target = next(iter(self._tgtd.named(name)), None)
            tid = target.tid if target else self._tgtd.new_target(name)
            self._target_manager.show_unit(tid, target, path, export.mode)
            users = self._target_manager.ensure_sentinel()
            self._tgtd.bind_account(tid, self._target_manager.sentinel_of(users))
            user = iscsi.account(name, initiator)
            if user in users and not (target and user in target.accounts):
                # It is unused, and its secret is unknown.
                self._tgtd.delete_account(user)
            self._tgtd.new_account(user, export.secret)
            self._tgtd.bind_account(tid, user)
            # Last: until here no host can log in.
            self._tgtd.allow(tid, initiator)
        portals = [self.options.tgt_portal, *self.options.tgt_more_portals]
        discards = self._target_manager.discards
        return iscsi.connection_info(
            volume, export, name, user, client.LUN, portals, discards=discards
        )

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Refuse the initiator, end its sessions and remove its account.

        What it shares with ``others`` from the same initiator stays until the last of them. A
        target of the other mode that has an account of the initiator is closed to it as well: no
        access remains, independent of the present mode.
        """
        with self._locks.held(volume.id):
            initiator = iscsi.initiator(export)
            if export.own_connection:
                self._target_manager.remove_own(
                    iscsi.target_of(self._prefix, volume.id, export), initiator
                )
                return
            found = {target.name: target for target in self._targets(volume)}
            for mode in iscsi.SUFFIXES:
                name = self._name(volume, mode)
                user, target = iscsi.account(name, initiator), found.get(name)
                staying = {iscsi.initiator(other) for other in iscsi.sharing(others, mode)}
                owed = target and any(
                    iscsi.account(name, other) not in target.accounts for other in staying
                )
                if target and (mode == export.mode or user in target.accounts or owed):
                    if staying:
                        self._target_manager.withdraw(target, initiator, staying)
                    else:
                        self._target_manager.remove(target)
                if initiator not in staying:
                    self._tgtd.delete_account(user)

    def connection_key(self, volume: base.VolumeRef, export: base.Export) -> str:
        """Return the name of the session: an initiator has one with a target."""
        if export.own_connection:
            return ""
        return f"{iscsi.initiator(export)} {self._name(volume, export.mode)}"

    def boot_id(self) -> str:
        """Return the id of this start of tgtd."""
        return self._target_manager.sentinel_of(
            self._target_manager.ensure_sentinel()
        ).removeprefix(self._sentinel_prefix)

    def list_exports(self) -> Iterable[base.BackendExport]:
        """List the targets with the prefix, except those with another backend's sentinel."""
        return self._listed(self._tgtd.targets())

    def list_volume_exports(self, volume: base.VolumeRef) -> Iterable[base.BackendExport]:
        """List the volume's targets."""
        return self._listed(self._targets(volume))

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return a target for each mode; hosts without an initiator have no access."""
        expected = []
        for mode in iscsi.SUFFIXES:
            name = self._name(volume, mode)
            if holders := iscsi.initiators(exports, mode):
                users = [listing.account(iscsi.account(name, holder)) for holder in holders]
                parts = frozenset([*users, listing.IN_SERVICE])
                expected.append(base.BackendExport(volume.id, mode, frozenset(holders), parts))
        for export in exports:
            initiator = iscsi.initiator(export)
            if export.own_connection and initiator:
                user = iscsi.account(iscsi.target_of(self._prefix, volume.id, export), initiator)
                own = iscsi.own_part(export.attachment_id)
                alone = iscsi.holders([initiator], export.attachment_id)
                parts = frozenset([listing.account(user), own])
                expected.append(base.BackendExport(volume.id, export.mode, alone, parts))
        return base.merge_exports(expected)

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Remove targets, initiators, sessions and accounts of all others than ``staying``."""
        kept: dict[str, tuple[base.AccessMode, set[str]]] = {
            self._name(volume, mode): (mode, iscsi.initiators(staying, mode))
            for mode in iscsi.SUFFIXES
        }
        for export in staying:
            if export.own_connection:
                initiators = {iscsi.initiator(export)} - {""}
                kept[iscsi.target_of(self._prefix, volume.id, export)] = (export.mode, initiators)
        for target in self._targets(volume):
            mode, initiators = kept.get(target.name, ("ro", set()))
            users = {iscsi.account(target.name, initiator) for initiator in initiators}
            if initiators:
                self._target_manager.revoke_all_except(target, initiators, users)
                self._target_manager.set_mode(target, mode)
            else:
                self._target_manager.remove(target)
            for user in target.accounts:
                if user not in users and iscsi.is_account(user):
                    self._tgtd.delete_account(user)

    def list_orphans(self) -> Iterable[base.Orphan]:
        """List the accounts that are bound to no target, both before and after the targets were
        listed.
        """
        before = set(self._tgtd.accounts())
        targets = self._tgtd.targets()
        users = [user for user in self._tgtd.accounts() if user in before]
        return listing.list_orphans(users, targets)

    def _name(self, volume: base.VolumeRef, mode: base.AccessMode) -> str:
        return iscsi.target(self._prefix, volume.id, mode)

    def _targets(self, volume: base.VolumeRef) -> list[parser.Target]:
        return self._tgtd.targets(self._name(volume, "rw"))


def _check_options(options: cfg.ConfigOpts.GroupAttr) -> None:
    if not _IQN_PREFIX.fullmatch(options.tgt_iqn_prefix):
        raise exception.BackendError(
            "tgt_iqn_prefix must be 'iqn.YYYY-MM.' and a reversed domain, a colon and small "
            "letters, digits, dots, dashes, colons.",
            final=True,
        )
    if "," in options.tgt_volumes_dir:
        raise exception.BackendError(
            "tgt_volumes_dir must not contain a comma, which tgtd takes for a separator.",
            final=True,
        )


def _check_not_exported(volume: base.VolumeRef, targets: Iterable[parser.Target]) -> None:
    for target in targets:
        raise exception.BackendError(
            f"Volume {volume.id} is still exported as {target.name}.", final=True
        )

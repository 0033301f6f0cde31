# SPDX-License-Identifier: Apache-2.0
"""Logical volumes of this machine, exported by one of the kernel's targets.

The kernel loses its configuration with a boot: the manager sees another :meth:`boot_id`, and
grants all exports again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from oslo_config import cfg

from attachd import exception
from attachd.drivers import abilities, base, existing, sparse
from attachd.drivers.lvm import configfs
from attachd.drivers.lvm.device_data import DeviceAccess, open_device
from attachd.drivers.lvm.existing import ExistingLvs
from attachd.drivers.lvm.existing_snapshots import ExistingSnapshots
from attachd.drivers.lvm.host_keys import HostKeys
from attachd.drivers.lvm.lio import Lio
from attachd.drivers.lvm.nvmet import Nvmet
from attachd.drivers.lvm.pools import Pools
from attachd.drivers.lvm.target import Target
from attachd.linux import boot

_TARGETS: Final[dict[str, type[Target]]] = {"lio": Lio, "nvmet": Nvmet}


class _Snapshots(existing.ManageSnapshotsByName, abilities.ReadSnapshots):
    """The ability of the driver to take snapshots, and to manage existing ones."""

    pools: Pools

    def create_snapshot(self, snapshot: base.SnapshotRef) -> dict[str, Any]:
        """Create a thin snapshot, or copy the LV."""
        self.pools.holding(snapshot.volume).snapshots.create(snapshot)
        return {}

    def delete_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Remove the LV; thin volumes that were made of it keep its blocks."""
        for group in self.pools.in_groups():
            group.snapshots.delete(snapshot.id)

    def create_from_snapshot(
        self, volume: base.VolumeRef, snapshot: base.SnapshotRef
    ) -> dict[str, Any]:
        """Create the LV as a snapshot of the snapshot, or copy it."""
        self.pools.holding(snapshot.volume).snapshots.create_volume(volume, snapshot)
        return {}

    def revert(self, snapshot: base.SnapshotRef) -> None:
        """Replace the LV of the volume."""
        self.pools.holding(snapshot.volume).snapshots.revert(snapshot)

    def open_snapshot(
        self, snapshot: base.SnapshotRef
    ) -> AbstractContextManager[abilities.VolumeData]:
        """Open the device of the LV."""
        device = self.pools.holding(snapshot.volume).snapshots.activate(snapshot.id)
        return open_device(device, f"Snapshot {snapshot.id}", "ro")

    def list_snapshots(self) -> Mapping[str, str]:
        """List the LVs of snapshots; their names do not tell their volumes."""
        groups = self.pools.in_groups()
        return {found: "" for group in groups for found in group.snapshots.list_ids()}


class LvmDriver(
    base.Driver,
    _Snapshots,
    abilities.Clone,
    abilities.OnlineExtend,
    abilities.Evict,
    DeviceAccess,
    existing.ManageByName,
):
    """Thin or thick logical volumes, over iSCSI or over NVMe/TCP.

    With LIO it is a :class:`LioDriver`.
    """

    # Each volume has targets of its own.
    SHARED_TARGETS = False
    KERNEL_DEVICES = True
    OPTIONS = (
        cfg.StrOpt(
            "lvm_volume_group",
            default="attachd",
            help="The volume group for the volumes. Several backends cannot share it.",
        ),
        cfg.StrOpt(
            "lvm_thin_pool",
            default="",
            help="The thin pool, in lvm_volume_group, for new volumes. Without it they are thick, "
            "and creating one takes as long as overwriting it with zeros.",
        ),
        cfg.ListOpt(
            "lvm_pools",
            default=[],
            help="Several pools instead of lvm_volume_group and lvm_thin_pool: volume groups for "
            "thick volumes, as GROUP, and thin pools, as GROUP/THIN_POOL. Existing volumes stay "
            "usable if one of the pools is in their volume group.",
        ),
        cfg.StrOpt(
            "lvm_target",
            default="lio",
            choices=[
                ("lio", "iSCSI, by the kernel's LIO."),
                ("nvmet", "NVMe/TCP, by the kernel's nvmet. It cannot enforce read-only."),
            ],
            help="How hosts reach the volumes. It must not be changed while any is attached.",
        ),
        cfg.ListOpt(
            "lvm_portals",
            default=[],
            help="ADDRESS:PORT of this machine where the kernel listens and hosts reach it, IPv6 "
            "addresses in brackets; several for hosts with multipath. The usual port of iSCSI is "
            "3260, that of NVMe/TCP 4420.",
        ),
        cfg.StrOpt(
            "lvm_host_keys",
            default="",
            help="With lvm_target nvmet, a file with DH-CHAP keys of hosts: lines with the NQN of "
            "a host and its key, as 'nvme gen-dhchap-key' makes it. A host without a line gets no "
            "volume. Without the file a host is who it claims to be. It needs a kernel with "
            "NVME_TARGET_AUTH, and counts for all backends of the machine.",
        ),
        cfg.BoolOpt(
            "lvm_immediate_data",
            default=False,
            help="With lvm_target lio, let hosts send the data of small writes with the command, "
            "which saves a round trip. A host that speaks iSCSI itself can then stop the targets "
            "of this machine until it is started again (Linux 6.1): do it only where tenants "
            "have no access to the network of the portals.",
        ),
        cfg.StrOpt(
            "lvm_wipe",
            default="none",
            choices=[
                ("none", "Nothing: thick volumes are overwritten when they are created."),
                ("discard", "Discard the blocks."),
                ("zero", "Overwrite with zeros; for thick volumes."),
            ],
            help="What is done with the data of a deleted volume.",
        ),
    )

    def __new__(cls, name: str, conf: cfg.ConfigOpts) -> "LvmDriver":  # noqa: PYI034  or LioDriver
        """Select the class with the abilities of the target."""
        return super().__new__(LioDriver if _TARGETS[conf[name].lvm_target] is Lio else cls)

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        self.pools = Pools(self.options)
        self.existing = ExistingLvs(self.pools, self._check_unused)
        self.existing_snapshots = ExistingSnapshots(self.pools)
        kind = _TARGETS[self.options.lvm_target]
        self.target: Target = kind(configfs.Tree(configfs.ROOT), name)
        self.target.host_keys = HostKeys(self.options.lvm_host_keys)
        self.target.immediate_data = self.options.lvm_immediate_data
        self.promises = self.target.promises

    def setup(self) -> None:
        """Check commands, volume groups, kernel modules, rights and portals."""
        self.target.portals = configfs.parse_portals(self.options.lvm_portals)
        if self.target.host_keys.are_required and not isinstance(self.target, Nvmet):
            raise exception.BackendError(
                "lvm_host_keys is for lvm_target nvmet: with lio each attachment has an account. "
                "Remove it.",
                final=True,
            )
        uuids = self.pools.check()
        self.copies_snapshots = self.pools.has_thick
        self.storage_ids = {pool or self.name: uuid for pool, uuid in uuids.items()}
        with sparse.map_os_errors("lvm_target cannot be used"):
            self.target.setup()

    def get_stats(self) -> base.BackendStats:
        """Return the size of the volume group, or of the thin pool, or of each of the pools."""
        return self.pools.stats(self.target.PROTOCOL)

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create the LV; the target gets it with the first export."""
        self.pools.for_new(volume).create(volume)
        return {}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Create the LV from a snapshot of the source.

        A thin snapshot is the volume.  A thick one is copied, and removed.
        """
        self.pools.holding(source).clone(volume, source.id)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Remove the LV; refused while a target shows it."""
        self._check_unused(volume)
        self.pools.holding(volume).delete(volume.id)

    def _check_unused(self, volume: base.VolumeRef) -> None:
        if volume.id in self.target.list_volume_ids():
            raise exception.BackendError(f"Volume {volume.id} is still exported.", final=True)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]
    ) -> None:
        """Extend the LV; the kernel's targets follow."""
        self.pools.holding(volume).extend(volume.id, size_gib)
        if exports:
            with sparse.map_os_errors(f"Hosts of volume {volume.id} could not be notified"):
                self.target.notify_size(volume)

    def check_connector(self, connector: base.Connector) -> None:
        """Refuse a host without the name that the target needs."""
        self.target.check_connector(connector)

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Let the target show the LV to a host.

        :returns: "iscsi" or "nvmeof", for os-brick's connectors
        """
        try:
            self.check_access_mode(export.mode)
            self.target.check_connector(export.connector)
        except exception.InvalidInput as error:
            raise exception.BackendError(f"{error}", final=True) from error
        device = self.pools.holding(volume).activate(volume.id)
        with sparse.map_os_errors(f"Volume {volume.id} could not be exported"):
            return self.target.grant(volume, export, device)

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Remove what the target has for the host, which ends its sessions."""
        with sparse.map_os_errors(f"Volume {volume.id} could not be withdrawn"):
            self.target.revoke(volume, export, others)

    def connection_key(self, volume: base.VolumeRef, export: base.Export) -> str:
        """Return the name of the connection of a host to a volume."""
        return self.target.connection_key(volume, export)

    def boot_id(self) -> str:
        """Return the boot id of the machine."""
        return boot.read_id()

    def list_exports(self) -> Iterator[base.BackendExport]:
        """List what the target has under the name of this backend."""
        with sparse.map_os_errors("The exports could not be listed"):
            ids = sorted(self.target.list_volume_ids())
        for volume_id in ids:
            yield from self.list_volume_exports(base.VolumeRef(volume_id, 0))

    def list_volume_exports(self, volume: base.VolumeRef) -> Iterable[base.BackendExport]:
        """List what the target has of a volume."""
        with sparse.map_os_errors("The exports could not be listed"):
            return list(self.target.list_exports(volume.id, self.pools.path(volume.id)))

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return what the target should have."""
        return self.target.expected_exports(volume, exports)

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Remove what the target has for all others than ``staying``."""
        with sparse.map_os_errors(f"Volume {volume.id} could not be withdrawn"):
            self.target.revoke_all_except(volume, staying)

    def list_volumes(self) -> Mapping[str, int]:
        """List the LVs with attachd's prefix."""
        return self.pools.sizes()

    def has_volume(self, volume: base.VolumeRef) -> bool:
        """Return whether the LV of a volume is there, which may not be active."""
        return self.pools.path(volume.id).exists() or super().has_volume(volume)


class LioDriver(LvmDriver, abilities.SwitchMode, abilities.PersistentReservations):
    """The same over iSCSI, where hosts can reserve volumes, and modes change under a session."""

    target: Lio

    def get_persistent_reservation(
        self, volume: base.VolumeRef
    ) -> abilities.PersistentReservation | None:
        """Return what the target shows."""
        with sparse.map_os_errors(f"The reservation of volume {volume.id} could not be read"):
            return self.target.get_persistent_reservation(volume)

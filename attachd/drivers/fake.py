# SPDX-License-Identifier: Apache-2.0
"""A backend that moves no bytes: for benchmarks, and for tests that need a backend to fail.

Everything is kept in the memory of one process, so that two worker processes know different
volumes; by the contract neither minds.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
import contextlib
import threading
import time
from typing import Any, NamedTuple
import uuid

from oslo_config import cfg

from attachd import exception
from attachd.drivers import abilities, base, existing

_CALLS_KEPT = 10_000


class Call(NamedTuple):
    """One call of a driver's method, by the ids of its arguments; "" where there is none."""

    method: str
    volume: str = ""
    attachment: str = ""
    others: tuple[str, ...] = ()


Script = Callable[[Call], None]
"""Called before anything is done; what it raises is the driver's answer."""


class _Objects(abilities.ManageExisting):
    """The objects of the fake driver that may become volumes."""

    existing: dict[str, int]
    _sizes: dict[str, int]
    _granted: dict[str, dict[str, base.AccessMode]]
    _perform: Callable[[Call], None]

    def has_volume(self, volume: base.VolumeRef) -> bool:  # noqa: ARG002
        """Return that a volume is there: other processes may have created it."""
        return True

    def list_manageable(self) -> Iterable[abilities.ManageableObject]:
        """List the volumes and the objects."""
        self._perform(Call("list_manageable"))
        volumes = [
            existing.managed(_object_name(key), size * 2**30, key)
            for key, size in list(self._sizes.items())
        ]
        return volumes + [
            abilities.ManageableObject({existing.KEY: name}, size)
            for name, size in list(self.existing.items())
        ]

    def get_manageable(self, reference: Mapping[str, str]) -> abilities.ManageableObject:
        """Return one of them, by its name."""
        for found in self.list_manageable():
            if found.reference == reference:
                return found
        raise existing.invalid(reference, "There is no object of this source-name.")

    def manage(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> dict[str, Any]:
        """Make a volume of an object."""
        self._perform(Call("manage", volume.id))
        base.check_still_owner()
        if volume.id not in self._sizes and self.existing.pop(reference[existing.KEY], 0) == 0:
            raise exception.BackendError("There is no such object.", final=True)
        self._sizes.setdefault(volume.id, volume.size_gib)
        return {}

    def unmanage(self, volume: base.VolumeRef) -> None:
        """Make an object of a volume, ``volume-<its id>``; refused while it is granted."""
        self._perform(Call("unmanage", volume.id))
        if self._granted.get(volume.id):
            raise exception.BackendError(f"Volume {volume.id} is still exported.", final=True)
        base.check_still_owner()
        if size := self._sizes.pop(volume.id, 0):
            self.existing[_object_name(volume.id)] = size * 2**30


class _Snapshots(abilities.ManageSnapshots):
    """The snapshots of the fake driver: only their volumes are kept.

    :ivar existing_snapshots: the volumes of the objects that may become snapshots, by their names
    """

    _sizes: dict[str, int]
    _perform: Callable[[Call], None]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._snapshots: dict[str, str] = {}
        self.existing_snapshots: dict[str, str] = {}

    def create_snapshot(self, snapshot: base.SnapshotRef) -> dict[str, Any]:
        """Record the volume."""
        self._perform(Call("create_snapshot", snapshot.volume.id, others=(snapshot.id,)))
        base.check_still_owner()
        self._snapshots[snapshot.id] = snapshot.volume.id
        return {}

    def delete_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Remove the snapshot."""
        self._perform(Call("delete_snapshot", snapshot.volume.id, others=(snapshot.id,)))
        base.check_still_owner()
        self._snapshots.pop(snapshot.id, None)

    def create_from_snapshot(
        self, volume: base.VolumeRef, snapshot: base.SnapshotRef
    ) -> dict[str, Any]:
        """Record the size."""
        self._perform(Call("create_from_snapshot", volume.id, others=(snapshot.id,)))
        base.check_still_owner()
        self._sizes.setdefault(volume.id, volume.size_gib)
        return {}

    def revert(self, snapshot: base.SnapshotRef) -> None:
        """Record the call: there is no data."""
        self._perform(Call("revert", snapshot.volume.id, others=(snapshot.id,)))
        base.check_still_owner()

    def list_snapshots(self) -> Mapping[str, str]:
        """List what this process created."""
        self._perform(Call("list_snapshots"))
        return dict(self._snapshots)

    def list_manageable_snapshots(self) -> Iterable[abilities.ManageableSnapshot]:
        """List the snapshots and the objects, of the size of their volumes."""
        self._perform(Call("list_manageable_snapshots"))
        taken = [
            abilities.ManageableSnapshot(
                {existing.KEY: f"snapshot-{key}"},
                self._size(volume),
                "already managed",
                key,
                volume,
            )
            for key, volume in list(self._snapshots.items())
        ]
        return taken + [
            abilities.ManageableSnapshot(
                {existing.KEY: name}, self._size(volume), volume_id=volume
            )
            for name, volume in list(self.existing_snapshots.items())
        ]

    def get_manageable_snapshot(
        self,
        volume: base.VolumeRef,  # noqa: ARG002  the names are those of the backend
        reference: Mapping[str, str],
    ) -> abilities.ManageableSnapshot:
        """Return one of them, by its name."""
        for found in self.list_manageable_snapshots():
            if found.reference == reference:
                return found
        raise existing.invalid(reference, "There is no object of this source-name.")

    def _size(self, volume_id: str) -> int:
        return self._sizes.get(volume_id, 1) * 2**30

    def manage_snapshot(
        self, snapshot: base.SnapshotRef, reference: Mapping[str, str]
    ) -> dict[str, Any]:
        """Make a snapshot of an object."""
        self._perform(Call("manage_snapshot", snapshot.volume.id, others=(snapshot.id,)))
        base.check_still_owner()
        if snapshot.id not in self._snapshots:
            if self.existing_snapshots.pop(reference[existing.KEY], None) is None:
                raise exception.BackendError("There is no such object.", final=True)
            self._snapshots[snapshot.id] = snapshot.volume.id
        return {}

    def unmanage_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Make an object of a snapshot, ``snapshot-<its id>``."""
        self._perform(Call("unmanage_snapshot", snapshot.volume.id, others=(snapshot.id,)))
        base.check_still_owner()
        if volume := self._snapshots.pop(snapshot.id, None):
            self.existing_snapshots[f"snapshot-{snapshot.id}"] = volume


class _NoData(abilities.VolumeData):
    """The data of a volume, which is all zeros.

    :param perform: called with each write
    """

    def __init__(self, volume: base.VolumeRef, perform: Callable[[Call], None]) -> None:
        self._volume_id = volume.id
        self._size = volume.size_gib * 2**30
        self._perform = perform

    def read(self, offset: int, length: int) -> bytes:  # noqa: ARG002
        """Return zeros."""
        return bytes(length)

    def write(self, offset: int, data: bytes) -> None:
        """Record the call."""
        if offset + len(data) > self._size:
            raise exception.BackendError("The bytes are beyond the end of the volume.")
        self._perform(Call("write_data", self._volume_id))
        base.check_still_owner()


class _Contents(abilities.DirectAccess, abilities.ReadSnapshots):
    """The data of the volumes and snapshots of the fake driver."""

    _perform: Callable[[Call], None]

    @contextlib.contextmanager
    def open_snapshot(self, snapshot: base.SnapshotRef) -> Iterator[abilities.VolumeData]:
        """Record the call."""
        self._perform(Call("open_snapshot", snapshot.volume.id, others=(snapshot.id,)))
        yield _NoData(snapshot.volume, self._perform)

    @contextlib.contextmanager
    def open_data(
        self,
        volume: base.VolumeRef,
        mode: base.AccessMode,  # noqa: ARG002
    ) -> Iterator[abilities.VolumeData]:
        """Record the call."""
        self._perform(Call("open_data", volume.id))
        yield _NoData(volume, self._perform)


class FakeDriver(
    _Snapshots,
    _Objects,
    base.Driver,
    abilities.Clone,
    abilities.OnlineExtend,
    abilities.SwitchMode,
    abilities.Evict,
    abilities.RememberClients,
    abilities.PersistentReservations,
    _Contents,
):
    """Grants and revokes at once, unless its options or a script make it slow or fail.

    Its ``driver_volume_type`` is "fake".  Nova's fake virtualization driver knows that name;
    os-brick does not and refuses it, as it should: there is nothing a host could connect to.

    :ivar calls: the last calls, oldest first
    :ivar persistent_reservations: by the ids of their volumes
    :ivar existing: bytes of the objects that may become volumes, by name
    :ivar script: see :data:`Script`; for tests that need another failure than the options make
    """

    SHARED_TARGETS = False
    PARALLEL_GRANTS = True
    IN_MEMORY = True
    # There is nothing that a host could reach.
    promises = base.Promises(per_host_access=True, read_only_enforced=True, complete_listing=True)
    OPTIONS = (
        cfg.FloatOpt(
            "fake_delay",
            default=0.0,
            min=0.0,
            help="Seconds that each call of the fake driver takes.",
        ),
        cfg.ListOpt(
            "fake_fail",
            default=[],
            help="Methods of the fake driver that always fail: create, clone, delete, extend, "
            "grant, revoke, get_stats, boot_id, list_exports, revoke_all_except, "
            "remember_clients, end_remembered_clients, get_persistent_reservation, "
            "list_manageable, manage, unmanage, create_snapshot, delete_snapshot, "
            "create_from_snapshot, revert, list_snapshots, list_manageable_snapshots, "
            "manage_snapshot, unmanage_snapshot, open_snapshot, open_data, write_data.",
        ),
        cfg.BoolOpt(
            "fake_fail_final",
            default=False,
            help="Whether those failures are final: nothing happened, for sure.",
        ),
    )

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        self.calls: deque[Call] = deque(maxlen=_CALLS_KEPT)
        self.script: Script | None = None
        self.persistent_reservations: dict[str, abilities.PersistentReservation] = {}
        self.existing: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._granted: dict[str, dict[str, base.AccessMode]] = {}
        self._boot_id = ""
        self._mutex = threading.Lock()

    def setup(self) -> None:
        """Do nothing."""

    def get_stats(self) -> base.BackendStats:
        """Return unlimited capacity."""
        self._perform(Call("get_stats"))
        return base.BackendStats(
            protocol="fake",
            total_gib=float("inf"),
            free_gib=float("inf"),
            allocated_gib=float(sum(list(self._sizes.values()))),
            capabilities={
                "multiattach": True,
                "thin_provisioning": True,
                "online_clone": True,
            },
        )

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Record the size."""
        self._perform(Call("create", volume.id))
        base.check_still_owner()
        self._sizes.setdefault(volume.id, volume.size_gib)
        return {}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Record the size."""
        self._perform(Call("clone", volume.id, others=(source.id,)))
        base.check_still_owner()
        self._sizes.setdefault(volume.id, volume.size_gib)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Remove the volume; refused while it is granted."""
        self._perform(Call("delete", volume.id))
        if self._granted.get(volume.id):
            raise exception.BackendError(f"Volume {volume.id} is still exported.", final=True)
        base.check_still_owner()
        self._sizes.pop(volume.id, None)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]
    ) -> None:
        """Record the larger size."""
        self._perform(Call("extend", volume.id, others=_ids(exports)))
        base.check_still_owner()
        self._sizes[volume.id] = max(size_gib, self._sizes.get(volume.id, 0))

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Record the export.

        :returns: ``data`` names the volume, the attachment and the mode
        """
        self._perform(Call("grant", volume.id, export.attachment_id))
        base.check_still_owner()
        with self._mutex:
            self._granted.setdefault(volume.id, {})[export.attachment_id] = export.mode
        data = {
            "volume_id": volume.id,
            "attachment_id": export.attachment_id,
            "access_mode": export.mode,
        }
        return {"driver_volume_type": "fake", "data": data}

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Remove the export."""
        self._perform(Call("revoke", volume.id, export.attachment_id, _ids(others)))
        self._forget(volume.id, [export.attachment_id])

    def boot_id(self) -> str:
        """Return the id that :meth:`restart` made; the same in all processes until then."""
        self._perform(Call("boot_id"))
        return self._boot_id

    def list_exports(self) -> Iterable[base.BackendExport]:
        """List what this process granted."""
        self._perform(Call("list_exports"))
        granted = list(self._granted.items())
        return [export for volume, modes in granted for export in _listed(volume, dict(modes))]

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """List them by mode."""
        return _listed(volume.id, {export.attachment_id: export.mode for export in exports})

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Remove all others, and those in another mode."""
        self._perform(Call("revoke_all_except", volume.id, others=_ids(staying)))
        expected = {export.attachment_id: export.mode for export in staying}
        granted = self._granted.get(volume.id, {})
        self._forget(
            volume.id,
            [
                attachment_id
                for attachment_id in granted
                if granted[attachment_id] != expected.get(attachment_id)
            ],
        )

    def remember_clients(self) -> None:
        """Record the call: there are no clients."""
        self._perform(Call("remember_clients"))

    def end_remembered_clients(self, volume: base.VolumeRef, export: base.Export) -> None:
        """Record the call: there are no clients."""
        self._perform(Call("end_remembered_clients", volume.id, export.attachment_id))

    def get_persistent_reservation(
        self, volume: base.VolumeRef
    ) -> abilities.PersistentReservation | None:
        """Return what a test has set."""
        self._perform(Call("get_persistent_reservation", volume.id))
        return self.persistent_reservations.get(volume.id)

    def list_volumes(self) -> Mapping[str, int]:
        """List what this process created."""
        return {volume: size * 2**30 for volume, size in list(self._sizes.items())}

    def _forget(self, volume_id: str, attachment_ids: Collection[str]) -> None:
        with self._mutex:
            granted = self._granted.get(volume_id, {})
            for attachment_id in attachment_ids:
                base.check_still_owner()
                granted.pop(attachment_id, None)
            if not granted:
                base.check_still_owner()
                self._granted.pop(volume_id, None)

    def restart(self) -> None:
        """Simulate a restart of the backend: remove the exports, keep the volumes."""
        self._granted.clear()
        self._boot_id = uuid.uuid4().hex

    def _perform(self, call: Call) -> None:
        """Record the call, then be slow or fail as configured."""
        self.calls.append(call)
        if self.options.fake_delay:
            time.sleep(self.options.fake_delay)
        if self.script is not None:
            self.script(call)
        if call.method in self.options.fake_fail:
            raise exception.BackendError(
                f"fake_fail of {self.name} says that {call.method} fails.",
                final=self.options.fake_fail_final,
            )


def _object_name(volume_id: str) -> str:
    return f"{existing.RELEASED_PREFIX}{volume_id}"


def _listed(volume_id: str, modes: Mapping[str, base.AccessMode]) -> list[base.BackendExport]:
    all_modes: tuple[base.AccessMode, ...] = ("rw", "ro")
    held = {
        mode: frozenset(item for item, its in modes.items() if its == mode) for mode in all_modes
    }
    return [base.BackendExport(volume_id, mode, held[mode]) for mode in all_modes if held[mode]]


def _ids(exports: Sequence[base.Export]) -> tuple[str, ...]:
    return tuple(export.attachment_id for export in exports)

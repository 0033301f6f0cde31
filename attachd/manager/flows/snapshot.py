# SPDX-License-Identifier: Apache-2.0
"""Flows that take and delete a snapshot, make a volume of it, and revert a volume to it."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow

from attachd import exception
from attachd.drivers.abilities import Answer, ManageSnapshots, ReadSnapshots, Snapshots
from attachd.drivers.base import Driver, SnapshotRef, VolumeRef
from attachd.images.glance import ACTIVE, ImageApi
from attachd.manager.flows.volume import Create, Upload, provider_values

LOG = log.getLogger(__name__)


def build_take(driver: Driver, snapshot: SnapshotRef) -> linear_flow.Flow:
    """Return the flow; it provides ``answer``, the driver's data about the snapshot."""
    return linear_flow.Flow("take snapshot").add(Take(driver, snapshot))


def build_delete(driver: Driver, snapshot: SnapshotRef) -> linear_flow.Flow:
    """Return the flow; it provides nothing."""
    return linear_flow.Flow("delete snapshot").add(Delete(driver, snapshot))


def build_manage(
    driver: Driver, snapshot: SnapshotRef, reference: Mapping[str, str]
) -> linear_flow.Flow:
    """Return the flow; it provides ``answer``, the driver's data about the snapshot."""
    return linear_flow.Flow("manage snapshot").add(Manage(driver, snapshot, reference))


def build_unmanage(driver: Driver, snapshot: SnapshotRef) -> linear_flow.Flow:
    """Return the flow; it provides nothing."""
    return linear_flow.Flow("unmanage snapshot").add(Unmanage(driver, snapshot))


def build_volume(driver: Driver, volume: VolumeRef, snapshot: SnapshotRef) -> linear_flow.Flow:
    """Return the flow for a volume with the data of a snapshot; as build_create()."""
    return linear_flow.Flow("create from snapshot").add(CreateVolume(driver, volume, snapshot))


def build_export(driver: Driver, snapshot: SnapshotRef, image_id: str) -> linear_flow.Flow:
    """Return the flow that takes a snapshot and sends it to an image; it provides nothing."""
    return linear_flow.Flow("export snapshot").add(UploadSnapshot(driver, snapshot, image_id))


def build_revert(driver: Driver, snapshot: SnapshotRef) -> linear_flow.Flow:
    """Return the flow; it provides nothing."""
    return linear_flow.Flow("revert").add(Revert(driver, snapshot))


def _able(driver: Driver) -> Snapshots:
    """Return the driver.

    :raises BackendError: final, it cannot take snapshots
    """
    if not isinstance(driver, Snapshots):
        raise exception.BackendError(f"Backend {driver.name} has no snapshots.", final=True)
    return driver


class _SnapshotTask(task.Task):
    """A task that calls a driver for one snapshot."""

    def __init__(self, driver: Driver, snapshot: SnapshotRef) -> None:
        super().__init__()
        self._driver = driver
        self._snapshot = snapshot


class Take(_SnapshotTask):
    """The backend takes the snapshot."""

    default_provides = "answer"

    def execute(self) -> Answer:
        """Take it; see drivers.abilities.Snapshots.create_snapshot()."""
        return _able(self._driver).create_snapshot(self._snapshot)

    def revert(self, **_flow: Any) -> bool:
        """Remove what was taken."""
        try:
            _able(self._driver).delete_snapshot(self._snapshot)
        except Exception:
            LOG.exception("Snapshot %s: a part of it may be left", self._snapshot.id)
            return False
        return True


class Delete(_SnapshotTask):
    """The backend removes the snapshot."""

    def execute(self) -> None:
        """Delete; see drivers.abilities.Snapshots.delete_snapshot()."""
        _able(self._driver).delete_snapshot(self._snapshot)

    def revert(self, **_flow: Any) -> bool:
        """Undo nothing: the rest is deleted by a retry."""
        return False


def _able_to_manage(driver: Driver) -> ManageSnapshots:
    """Return the driver.

    :raises BackendError: final, it cannot manage snapshots
    """
    if not isinstance(driver, ManageSnapshots):
        raise exception.BackendError(f"Backend {driver.name} manages no snapshots.", final=True)
    return driver


class Manage(_SnapshotTask):
    """The backend makes a snapshot of an object."""

    default_provides = "answer"

    def __init__(
        self, driver: Driver, snapshot: SnapshotRef, reference: Mapping[str, str]
    ) -> None:
        super().__init__(driver, snapshot)
        self._reference = reference

    def execute(self) -> Answer:
        """Manage; see drivers.abilities.ManageSnapshots.manage_snapshot()."""
        return _able_to_manage(self._driver).manage_snapshot(self._snapshot, self._reference)

    def revert(self, **_flow: Any) -> bool:
        """Release the object, with its data."""
        try:
            _able_to_manage(self._driver).unmanage_snapshot(self._snapshot)
        except Exception:
            LOG.exception("Snapshot %s: may still have the object", self._snapshot.id)
            return False
        return True


class Unmanage(_SnapshotTask):
    """The backend makes an object of the snapshot."""

    def execute(self) -> None:
        """Unmanage; see drivers.abilities.ManageSnapshots.unmanage_snapshot()."""
        _able_to_manage(self._driver).unmanage_snapshot(self._snapshot)

    def revert(self, **_flow: Any) -> bool:
        """Undo nothing: a retry unmanages the rest."""
        return False


class CreateVolume(Create):
    """The backend creates a volume with the data of the snapshot."""

    def __init__(self, driver: Driver, volume: VolumeRef, snapshot: SnapshotRef) -> None:
        super().__init__(driver, volume)
        self._snapshot = snapshot

    def execute(self) -> Answer:
        """Create; see drivers.abilities.Snapshots.create_from_snapshot()."""
        return _able(self._driver).create_from_snapshot(self._volume, self._snapshot)


class UploadSnapshot(Upload):
    """The backend takes the snapshot, and the manager sends its data to an image."""

    def __init__(self, driver: Driver, snapshot: SnapshotRef, image_id: str) -> None:
        super().__init__(driver, snapshot.volume, image_id)
        self._snapshot = snapshot

    def execute(self) -> None:
        """Take and send, unless a manager was killed when it had sent all data."""
        driver, snapshot = self._driver, self._snapshot
        if not isinstance(driver, ReadSnapshots):
            raise exception.BackendError(
                f"Backend {driver.name} cannot upload volumes in use.", final=True
            )
        if ImageApi.of_service().get(self._image_id).status == ACTIVE:
            return
        answer = driver.create_snapshot(snapshot)
        taken = dataclasses.replace(snapshot, **provider_values(answer))
        self._send(lambda: driver.open_snapshot(taken), snapshot.size_gib)


class Revert(_SnapshotTask):
    """The backend gives the volume the data of the snapshot."""

    def execute(self) -> None:
        """Revert; see drivers.abilities.Snapshots.revert()."""
        _able(self._driver).revert(self._snapshot)

    def revert(self, **_flow: Any) -> bool:
        """Undo nothing: the former data may be gone."""
        return False

# SPDX-License-Identifier: Apache-2.0
"""Take, manage, unmanage and delete snapshots: the flow, and the row after it.

As with volumes, the API has stored the row with the operation that is to be done, and a duplicate
or late message finds the row in another state and does nothing.  The lock is that of the snapshot:
its volume is attached and detached meanwhile.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import functools
from typing import Any, Final

from oslo_log import log
from taskflow.flow import Flow

from attachd import exception
from attachd.db.row_types import DriverVolumeRow, SnapshotRow
from attachd.db.volumes import image_cache_entries, snapshot_store, volume_store
from attachd.drivers.abilities import ManageSnapshots, Snapshots
from attachd.manager import backends, copy_progress, flow_runner, notify
from attachd.manager.backends import Backend
from attachd.manager.flows import snapshot as snapshot_flows
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.states import Event, SnapshotState

LOG = log.getLogger(__name__)

FAILURES: Final = (flow_runner.FlowFailed, exception.Unavailable, exception.NotFound)
"""The errors that end an operation on a snapshot and are stored in its row."""


def create(backend: Backend, snapshot_id: str) -> None:
    """Take a snapshot; where that may copy data, in a background task."""
    driver = backend.driver
    if isinstance(driver, Snapshots) and driver.copies_snapshots:
        backend.background_tasks.submit(snapshot_id, lambda: take(backend, snapshot_id))
    else:
        take(backend, snapshot_id)


def take(backend: Backend, snapshot_id: str) -> None:
    """Take the snapshot; its row becomes ``available``, or ``error`` with the reason."""
    try:
        with backend.lock_snapshot(snapshot_id) as lease:
            if row := _get_in_state(snapshot_id, SnapshotState.CREATING):
                _take(backend, row, lease)
    except exception.SnapshotNotFound:
        LOG.info("Snapshot %s: does not exist any more, nothing to do", snapshot_id)


def _take(backend: Backend, row: SnapshotRow, lease: VolumeLease) -> None:
    volume = volume_store.get_for_driver(row["volume_id"])
    notify.snapshot_event(backend, "create.start", row, volume)
    try:
        backend.check_ready()
        store = functools.partial(snapshot_store.set_progress, row["id"])
        with copy_progress.stored(f"Snapshot {row['id']}", store):
            provided = flow_runner.run(_flow_to_take(backend, row, volume), {})
    except FAILURES as failure:
        if not (_is_object(row) and _is_left_to_recovery(row, failure)):
            _record_failure(lease, Event.CREATE_FAILED, failure)
        return
    provider, secrets = backends.split_secrets(provided["answer"])
    values = {"provider": provider, **secrets, "error": None, "progress": copy_progress.COMPLETE}
    if after := _record(lease, Event.CREATED, values):
        notify.snapshot_event(backend, "create.end", after, volume)


def _is_object(row: SnapshotRow) -> bool:
    """Return whether a snapshot is an object of the backend that was to become it.

    Its data is not this service's to delete.
    """
    return snapshot_store.TO_MANAGE in row["provider"]


def _flow_to_take(backend: Backend, row: SnapshotRow, volume: DriverVolumeRow) -> Flow:
    if not _is_object(row):
        return snapshot_flows.build_take(backend.driver, backends.snapshot_ref(row, volume))
    new: SnapshotRow = {**row, "provider": {}}
    reference = row["provider"][snapshot_store.TO_MANAGE]
    return snapshot_flows.build_manage(
        backend.driver, backends.snapshot_ref(new, volume), reference
    )


def _is_left_to_recovery(row: SnapshotRow, failure: Exception) -> bool:
    """Return whether an operation failed because the backend is away: it is tried again."""
    cause = failure.cause if isinstance(failure, flow_runner.FlowFailed) else failure
    if not isinstance(cause, exception.BackendUnavailable | exception.BackendUnreachable):
        return False
    LOG.warning("Snapshot %s: left to recovery: %s", row["id"], flow_runner.reason(cause))
    return True


def list_manageable(backend: Backend) -> list[dict[str, Any]]:
    """Return the snapshots and the objects of a backend.

    See manager_api.list_manageable_snapshots().
    """
    with _driver_to_manage(backend) as driver:
        return [dataclasses.asdict(item) for item in driver.list_manageable_snapshots()]


def get_manageable(
    backend: Backend, volume_id: str, reference: Mapping[str, str]
) -> dict[str, Any]:
    """Return one of them, as of manager_api.get_manageable_snapshot()."""
    with _driver_to_manage(backend) as driver:
        volume = backends.volume_ref(volume_store.get_for_driver(volume_id))
        return dataclasses.asdict(driver.get_manageable_snapshot(volume, reference))


@contextlib.contextmanager
def _driver_to_manage(backend: Backend) -> Iterator[ManageSnapshots]:
    """Yield the driver.

    :raises AbilityMissing: it cannot manage snapshots
    :raises Unavailable: the backend does not answer, also in the block
    """
    driver = backend.driver
    if not isinstance(driver, ManageSnapshots):
        raise exception.AbilityMissing(backend=backend.name, ability="manage_snapshots")
    backend.check_ready()
    try:
        yield driver
    except exception.BackendError as error:
        raise exception.Unavailable(reason=f"Backend {backend.name}: {error}") from error


def delete(backend: Backend, snapshot_id: str) -> None:
    """Remove a snapshot, or release its data, and remove its row.

    If that fails, the row becomes ``error_deleting``, or ``error``, with the reason.
    """
    try:
        with backend.lock_snapshot(snapshot_id) as lease:
            row = _get_in_state(snapshot_id, SnapshotState.DELETING, SnapshotState.UNMANAGING)
            if row and _delete(backend, row, lease):
                backend.delete_lock_files(snapshot_id)
    except exception.SnapshotNotFound:
        LOG.info("Snapshot %s: does not exist any more, nothing to do", snapshot_id)


def _delete(backend: Backend, row: SnapshotRow, lease: VolumeLease) -> bool:
    """Return whether the snapshot and its row were removed."""
    volume = volume_store.get_for_driver(row["volume_id"])
    notify.snapshot_event(backend, "delete.start", row, volume)
    unmanages = row["state"] == SnapshotState.UNMANAGING
    is_kept = unmanages or _is_object(row)
    build = snapshot_flows.build_unmanage if is_kept else snapshot_flows.build_delete
    try:
        backend.check_ready()
        flow_runner.run(build(backend.driver, backends.snapshot_ref(row, volume)), {})
    except FAILURES as failure:
        if row["project_id"] == image_cache_entries.PROJECT:
            LOG.warning("Snapshot %s: left to recovery: %s", row["id"], failure)
        elif not (unmanages and _is_left_to_recovery(row, failure)):
            failed = Event.UNMANAGE_FAILED if unmanages else Event.DELETE_FAILED
            _record_failure(lease, failed, failure)
        return False
    if _record(lease, Event.UNMANAGED if unmanages else Event.DELETED, {}) is None:
        return False
    notify.snapshot_event(backend, "delete.end", row, volume, status="deleted")
    return True


def delete_all(backend: Backend, volume: DriverVolumeRow) -> bool:
    """Remove the snapshots of a volume that is deleted with them.

    :returns: False: another operation is still deleting one of them, recovery has to continue
    :raises BackendError: one of them cannot be deleted
    """
    for row in snapshot_store.list_of_volume(volume["id"]):
        if row["state"] == SnapshotState.ERROR_DELETING:
            snapshot_store.transition(row["id"], Event.DELETE)
        try:
            delete(backend, row["id"])
        except exception.Unavailable as error:
            LOG.warning("Snapshot %s: left to recovery: %s", row["id"], error)
    left = snapshot_store.list_of_volume(volume["id"])
    for row in left:
        if row["state"] != SnapshotState.DELETING:
            raise exception.BackendError(
                f"Snapshot {row['id']} of the volume could not be deleted: "
                f"{row['error'] or row['state']}"
            )
    return not left


def _get_in_state(snapshot_id: str, *expected: SnapshotState) -> SnapshotRow | None:
    """Return the row if it is in an expected state, or None."""
    row = snapshot_store.get(snapshot_id, None)
    if row["state"] in expected:
        return row
    names = " or ".join(expected)
    LOG.info("Snapshot %s: is %s and not %s, nothing to do", snapshot_id, row["state"], names)
    return None


def _record_failure(lease: VolumeLease, event: Event, failure: Exception) -> None:
    """Store the failure and a message to the user; unless another manager continues the work."""
    if lease.may_be_taken_over():
        return
    cause = failure.cause if isinstance(failure, flow_runner.FlowFailed) else failure
    if row := _record(lease, event, {"error": flow_runner.reason(cause)}):
        notify.snapshot_message(row, event, cause)


def _record(lease: VolumeLease, event: Event, values: dict[str, Any]) -> SnapshotRow | None:
    """Store the result and return the row; None if another process has changed the row."""
    snapshot_id = lease.token.volume_id
    if values.get("error"):
        step = event.name.lower().replace("_", " ")  # such as "create failed"
        LOG.warning("Snapshot %s: %s: %s", snapshot_id, step, values["error"])
    try:
        return snapshot_store.transition(snapshot_id, event, values, lease.token)
    except (exception.InvalidTransition, exception.NotFound, exception.TakenOver):
        LOG.warning("Snapshot %s: changed by another process, left as it is", snapshot_id)
        return None

# SPDX-License-Identifier: Apache-2.0
"""Take and delete snapshots: the flow, and the row after it.

As with volumes, the API has stored the row with the operation that is to be done, and a duplicate
or late message finds the row in another state and does nothing.  The lock is that of the snapshot:
its volume is attached and detached meanwhile.
"""

import functools
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.db.row_types import DriverVolumeRow, SnapshotRow
from attachd.db.volumes import snapshot_store, volume_store
from attachd.drivers.abilities import Snapshots
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
    ref = backends.snapshot_ref(row, volume)
    try:
        backend.check_ready()
        store = functools.partial(snapshot_store.set_progress, row["id"])
        with copy_progress.stored(f"Snapshot {row['id']}", store):
            provided = flow_runner.run(snapshot_flows.build_take(backend.driver, ref), {})
    except FAILURES as failure:
        _record_failure(lease, Event.CREATE_FAILED, failure)
        return
    provider, secrets = backends.split_secrets(provided["answer"])
    values = {"provider": provider, **secrets, "error": None, "progress": copy_progress.COMPLETE}
    if after := _record(lease, Event.CREATED, values):
        notify.snapshot_event(backend, "create.end", after, volume)


def delete(backend: Backend, snapshot_id: str) -> None:
    """Remove a snapshot and its row; or the row becomes ``error_deleting`` with the reason."""
    try:
        with backend.lock_snapshot(snapshot_id) as lease:
            row = _get_in_state(snapshot_id, SnapshotState.DELETING)
            if row and _delete(backend, row, lease):
                backend.delete_lock_files(snapshot_id)
    except exception.SnapshotNotFound:
        LOG.info("Snapshot %s: does not exist any more, nothing to do", snapshot_id)


def _delete(backend: Backend, row: SnapshotRow, lease: VolumeLease) -> bool:
    """Return whether the snapshot and its row were removed."""
    volume = volume_store.get_for_driver(row["volume_id"])
    notify.snapshot_event(backend, "delete.start", row, volume)
    ref = backends.snapshot_ref(row, volume)
    try:
        backend.check_ready()
        flow_runner.run(snapshot_flows.build_delete(backend.driver, ref), {})
    except FAILURES as failure:
        _record_failure(lease, Event.DELETE_FAILED, failure)
        return False
    if _record(lease, Event.DELETED, {}) is None:
        return False
    notify.snapshot_event(backend, "delete.end", row, volume, status="deleted")
    return True


def delete_all(backend: Backend, volume: DriverVolumeRow) -> None:
    """Remove the snapshots of a volume that is deleted with them.

    :raises BackendError: one of them is still there
    """
    for row in snapshot_store.list_of_volume(volume["id"]):
        if row["state"] == SnapshotState.ERROR_DELETING:
            snapshot_store.transition(row["id"], Event.DELETE)
        delete(backend, row["id"])
    if left := snapshot_store.list_of_volume(volume["id"]):
        raise exception.BackendError(
            f"Snapshot {left[0]['id']} of the volume could not be deleted: "
            f"{left[0]['error'] or left[0]['state']}"
        )


def _get_in_state(snapshot_id: str, expected: SnapshotState) -> SnapshotRow | None:
    """Return the row if it is in the expected state, or None."""
    row = snapshot_store.get(snapshot_id, None)
    if row["state"] == expected:
        return row
    LOG.info("Snapshot %s: is %s and not %s, nothing to do", snapshot_id, row["state"], expected)
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

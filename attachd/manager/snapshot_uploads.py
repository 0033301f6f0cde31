# SPDX-License-Identifier: Apache-2.0
"""Make images of volumes in use, by a snapshot that is removed in the end.

The row of the snapshot says what is to be done, and its lock is the one that is taken: hosts are
attached and detached while the snapshot is sent.
"""

from typing import Any

from oslo_log import log

from attachd import exception
from attachd.db.row_types import SnapshotRow
from attachd.db.volumes import image_cache_entries, snapshot_store, upload_snapshots, volume_store
from attachd.drivers.base import SnapshotRef
from attachd.manager import backends, flow_runner, notify, volumes
from attachd.manager.backends import Backend
from attachd.manager.flows import snapshot as snapshot_flows
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.states import Event, SnapshotState

LOG = log.getLogger(__name__)


def is_of_upload(row: SnapshotRow) -> bool:
    """Return whether a snapshot is there for an upload that has not ended."""
    is_internal = row["project_id"] == image_cache_entries.PROJECT
    return is_internal and row["state"] == SnapshotState.CREATING


def upload(backend: Backend, snapshot_id: str) -> None:
    """Do as :func:`run` in a background task."""
    backend.background_tasks.submit(snapshot_id, lambda: run(backend, snapshot_id))


def run(backend: Backend, snapshot_id: str) -> None:
    """Take a snapshot, send it to the image of the same id, and remove it.

    Without success the image is deleted.  While the backend is away, it is left to recovery.
    """
    try:
        with backend.lock_snapshot(snapshot_id) as lease:
            row = snapshot_store.get(snapshot_id, None)
            if is_of_upload(row):
                _run(backend, row, lease)
                backend.delete_lock_files(snapshot_id)
    except exception.NotFound:
        LOG.info("Snapshot %s: does not exist any more, nothing to do", snapshot_id)


def _run(backend: Backend, row: SnapshotRow, lease: VolumeLease) -> None:
    backend.check_ready()
    volume = volume_store.get_for_driver(row["volume_id"])
    ref = backends.snapshot_ref(row, volume)
    event, values, cause = Event.UPLOADED, dict[str, Any](volumes.NO_ERROR), None
    if upload_snapshots.is_uploaded_to(volume, row["id"]):
        try:
            flow_runner.run(snapshot_flows.build_export(backend.driver, ref, row["id"]), {})
        except volumes.FAILURES as failure:
            if lease.may_be_taken_over():
                return
            cause = failure.cause if isinstance(failure, flow_runner.FlowFailed) else failure
            event, values = Event.UPLOAD_FAILED, {"error": flow_runner.reason(cause)}
            LOG.warning("Volume %s: upload failed: %s", row["volume_id"], values["error"])
    removed = _remove(backend, ref)
    _record(lease, row, event, values, cause, removed=removed)


def _remove(backend: Backend, snapshot: SnapshotRef) -> bool:
    """Remove the snapshot at the backend; False: it may be left."""
    try:
        flow_runner.run(snapshot_flows.build_delete(backend.driver, snapshot), {})
    except volumes.FAILURES as failure:
        LOG.warning("Snapshot %s: its removal is left to recovery: %s", snapshot.id, failure)
        return False
    return True


def _record(
    lease: VolumeLease,
    row: SnapshotRow,
    event: Event,
    values: dict[str, Any],
    cause: Exception | None,
    *,
    removed: bool,
) -> None:
    """Store the end of the upload, and a message to the user of one that has failed."""
    place = (lease.token, row["volume_id"])
    try:
        volume = upload_snapshots.end(*place, event, values, removed=removed)
    except (exception.InvalidTransition, exception.TakenOver):
        LOG.warning("Snapshot %s: changed by another process, left as it is", row["id"])
        return
    if volume is not None and cause is not None:
        notify.volume_message(volume, event, cause)

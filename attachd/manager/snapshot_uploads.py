# SPDX-License-Identifier: Apache-2.0
"""Make images of volumes in use, by a snapshot that is removed in the end.

The row of the snapshot says what is to be done, and its lock is the one that is taken: hosts are
attached and detached while the snapshot is sent.
"""

import functools
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.db.row_types import SnapshotRow
from attachd.db.volumes import image_cache_entries, snapshot_store, upload_snapshots, volume_store
from attachd.drivers.base import SnapshotRef
from attachd.manager import backends, flow_runner, upload_images, volumes
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

    Without success the image is deleted.  While the backend is away, or the image cannot be
    deleted, it is left to recovery.
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
    ref, image_id = backends.snapshot_ref(row, volume), row["id"]
    event: Event | None = Event.UPLOADED
    if upload_snapshots.is_uploaded_to(volume, image_id):
        build = functools.partial(snapshot_flows.build_export, backend.driver, ref, image_id)
        event = upload_images.send(volume, image_id, row["created_at"], lease, build)
    else:
        upload_images.discard(image_id)
    if event is None:
        return
    values = dict(volumes.NO_ERROR) if event is Event.UPLOADED else {}
    _record(lease, row, event, values, removed=_remove(backend, ref))


def _remove(backend: Backend, snapshot: SnapshotRef) -> bool:
    """Remove the snapshot at the backend; False: it may be left."""
    try:
        flow_runner.run(snapshot_flows.build_delete(backend.driver, snapshot), {})
    except volumes.FAILURES as failure:
        LOG.warning("Snapshot %s: its removal is left to recovery: %s", snapshot.id, failure)
        return False
    return True


def _record(
    lease: VolumeLease, row: SnapshotRow, event: Event, values: dict[str, Any], *, removed: bool
) -> None:
    """Store the end of the upload."""
    place = (lease.token, row["volume_id"])
    try:
        upload_snapshots.end(*place, event, values, removed=removed)
    except (exception.InvalidTransition, exception.TakenOver):
        LOG.warning("Snapshot %s: changed by another process, left as it is", row["id"])

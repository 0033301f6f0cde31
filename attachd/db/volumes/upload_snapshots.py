# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes in use that are uploaded to images; used by the API and the managers.

Such a snapshot is a row of the internal project, and its id is that of the image.  It is in
``creating`` until the upload has ended: so recovery finds it, and its volume does not, which has
no owner meanwhile.  The lease is that of the snapshot: hosts are attached and detached.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.cluster import volume_leases
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import SnapshotRow, VolumeRow
from attachd.db.volumes import snapshot_rules, volume_store
from attachd.db.volumes.image_cache_entries import PROJECT
from attachd.states import Event, SnapshotState, VolumeState

_SNAPSHOTS = models.snapshots
_IN_USE = "in-use"


@retried
def begin(volume_id: str, project_id: str, image_id: str) -> VolumeRow:
    """Take a volume in use to its upload, and store the snapshot that is to be taken for it.

    :param project_id: as of volume_store.lock()
    :returns: the row of the volume after it
    :raises VolumeNotFound: it does not exist any more
    :raises InvalidTransition: it is not in use
    """
    with session.writer() as connection:
        row = volume_store.lock(connection, volume_id, project_id)
        if row["status"] != _IN_USE:
            raise exception.InvalidTransition(
                kind="Volume", id=volume_id, source=row["status"], event=Event.UPLOAD.value
            )
        values = {"upload_image_id": image_id, "owner": None, "error": None}
        moved = volume_store.move(connection, row, Event.UPLOAD, values)
        new: dict[str, Any] = {
            **{column.name: None for column in _SNAPSHOTS.c},
            "id": image_id,
            "volume_id": volume_id,
            "project_id": PROJECT,
            "name": f"upload-{image_id}",
            "size_gib": row["size_gib"],
            "volume_type_id": row["volume_type_id"],
            "bootable": row["bootable"],
            "state": SnapshotState.CREATING.value,
            "progress": 0,
            "provider": {},
            "owner": row["backend_host"],
            "lease_generation": 0,
            "created_at": models.now(),
        }
        connection.execute(sa.insert(_SNAPSHOTS).values(new))
    return moved


@retried
def cancel(volume_id: str, image_id: str) -> VolumeRow:
    """Undo :func:`begin`, before a manager has worked on the snapshot.

    :returns: the row of the volume after it
    :raises VolumeNotFound, SnapshotNotFound: one of them does not exist any more
    :raises InvalidTransition: a manager has worked on it, and ends the upload
    """
    with session.writer() as connection:
        volume = volume_store.lock(connection, volume_id)
        row = snapshot_rules.lock(connection, image_id)
        if row["lease_generation"]:
            raise exception.InvalidTransition(
                kind="Snapshot", id=image_id, source=row["state"], event="be cancelled"
            )
        _end(connection, volume, row, Event.UPLOAD_FAILED, {})
        snapshot_rules.move(connection, row, Event.DELETED, None)
    return volume


@retried
def end(
    lease: volume_leases.VolumeLeaseToken,
    volume_id: str,
    event: Event,
    values: Mapping[str, Any],
    *,
    removed: bool,
) -> VolumeRow | None:
    """Store the end of an upload, with that of its snapshot.

    :param lease: of the snapshot; it has to be acquired
    :param values: columns to store with the volume
    :param removed: whether the backend has removed the snapshot; otherwise it is to be deleted
    :returns: the row of the volume after it; None: the volume is not uploaded to this image now
    :raises VolumeNotFound, SnapshotNotFound: one of them does not exist any more
    :raises TakenOver: another process works on the snapshot by now
    """
    with session.writer() as connection:
        volume = volume_store.lock(connection, volume_id)
        row = snapshot_rules.lock(connection, lease.volume_id)
        leased: volume_leases.LeaseRow = {
            "id": row["id"],
            "lease_holder": row["lease_holder"],
            "lease_generation": row["lease_generation"],
        }
        volume_leases.acquire(connection, leased, lease)
        is_reset = row["state"] != SnapshotState.CREATING
        is_uploaded = _end(connection, volume, row, event, values)
        if removed and not is_reset:
            snapshot_rules.move(connection, row, Event.DELETED, None)
    return volume if is_uploaded else None


def is_uploaded_to(volume: VolumeRow, image_id: str) -> bool:
    """Return whether a volume is being uploaded to an image."""
    return volume["state"] == VolumeState.UPLOADING and volume["upload_image_id"] == image_id


def _end(
    connection: sa.Connection,
    volume: VolumeRow,
    row: SnapshotRow,
    event: Event,
    values: Mapping[str, Any],
) -> bool:
    """Move a volume and a snapshot, both locked; return whether the volume was uploaded."""
    is_uploaded = is_uploaded_to(volume, row["id"])
    if is_uploaded:
        volume_store.move(connection, volume, event, {**values, "upload_image_id": None})
    if row["state"] == SnapshotState.CREATING:  # An administrator may have set another one.
        snapshot_rules.move(connection, row, Event.UPLOADED, volume["backend_host"])
    return is_uploaded

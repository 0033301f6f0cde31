# SPDX-License-Identifier: Apache-2.0
"""Requests to the managers to take, manage, unmanage and delete snapshots.

Each row records the pending work before the message is sent, so a manager that is down finds it
later.  If the message cannot be sent, the row records the failure.
"""

from collections.abc import Mapping
from typing import Any

from attachd import exception
from attachd.api import idempotency, scheduler
from attachd.context import RequestContext
from attachd.db.row_types import SnapshotRow, SnapshotWithVolumeRow
from attachd.db.volumes import snapshot_store
from attachd.objects import Volume, backend_of, scope
from attachd.rpc import manager_api
from attachd.states import Event, SnapshotState


def create(
    ctx: RequestContext,
    volume: Volume,
    values: Mapping[str, Any],
    statuses: tuple[str, ...],
    claim: idempotency.IdempotencyClaim | None = None,
) -> SnapshotWithVolumeRow:
    """Store a snapshot and have it taken, or continue with that of an earlier run of the request.

    :param values: columns, and ``metadata``
    :param statuses: those of the volume in which it may be taken
    :param claim: of the request's key
    :raises NoValidBackend: the backend of the volume has no snapshots
    :raises BackendFrozen: it is frozen
    :raises InvalidVolume: the status of the volume does not allow it
    :raises QuotaExceeded: the quota of the project is exceeded
    :raises Unavailable: the message could not be sent; without a key the snapshot is in error
    """
    row = find(ctx, claim)
    if row is None:
        _check_backend(volume)
        new = {
            **values,
            "volume_id": volume.id,
            "project_id": volume.project_id,
            "user_id": ctx.user_id,
        }
        if claim is None:
            row = snapshot_store.create(new, statuses)
        else:
            new["id"] = claim.resource_id
            row = snapshot_store.create(new, statuses, claim.note)
            claim.held = True
    if row["state"] == SnapshotState.CREATING:
        _request(ctx, row, is_kept=claim is not None)
    return row


def find(
    ctx: RequestContext, claim: idempotency.IdempotencyClaim | None
) -> SnapshotWithVolumeRow | None:
    """Return the snapshot that an earlier run of a request has created, or None."""
    if claim is None:
        return None
    resource_id = claim.resource_id
    return idempotency.find_created(
        claim, "snapshot", lambda: snapshot_store.get(resource_id, scope(ctx))
    )


def replay_create(ctx: RequestContext, snapshot_id: str, kept: Any) -> Any:
    """Return the stored answer of :func:`create`, if the snapshot still exists."""
    idempotency.load_created(
        snapshot_id, "snapshot", lambda: snapshot_store.get(snapshot_id, scope(ctx))
    )
    return kept


def _check_backend(volume: Volume) -> None:
    if volume.host is None:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} has no backend: no snapshot of it can be taken."
        )
    scheduler.check_not_frozen(volume.host)
    scheduler.check_snapshots(volume.host)


def _request(ctx: RequestContext, row: SnapshotWithVolumeRow, *, is_kept: bool) -> None:
    try:
        manager_api.create_snapshot(ctx, backend_of(row["volume_host"]), row["id"])
    except exception.AttachdError as error:
        if is_kept:
            raise
        if _revert_if_unsent(row, Event.CREATE_FAILED, error):
            raise exception.Unavailable(
                reason=f"Snapshot {row['id']} was not taken and is in error: {error} Delete it."
            ) from error


def delete(ctx: RequestContext, row: SnapshotWithVolumeRow) -> None:
    """Mark a snapshot and have it deleted.

    :raises InvalidTransition: its state does not allow deletion
    :raises InvalidSnapshot: a volume is being made of it
    :raises Unavailable: the message could not be sent; the snapshot is in ``error_deleting``
    :raises BackendFrozen: its backend is frozen
    """
    scheduler.check_not_frozen(row["volume_host"])
    snapshot_store.transition(row["id"], Event.DELETE, project_id=row["project_id"])
    try:
        manager_api.delete_snapshot(ctx, backend_of(row["volume_host"]), row["id"])
    except exception.AttachdError as error:
        if _revert_if_unsent(row, Event.DELETE_FAILED, error):
            raise


def check_can_manage(volume: Volume) -> None:
    """Check that the backend of a volume can make a snapshot of an object.

    :raises NoValidBackend: it cannot
    :raises BackendFrozen: it is frozen
    """
    _check_backend(volume)
    scheduler.check_manage_snapshots(volume.host)
    scheduler.check_reporting(volume.backend)


def unmanage(ctx: RequestContext, row: SnapshotWithVolumeRow) -> None:
    """Mark a snapshot and have it removed without its data.

    :raises NoValidBackend: its backend cannot do this
    :raises InvalidTransition: its state does not allow it
    :raises InvalidSnapshot: a volume is being made of it
    :raises Unavailable: the message could not be sent; the snapshot is in error
    """
    scheduler.check_manage_snapshots(row["volume_host"])
    snapshot_store.transition(row["id"], Event.UNMANAGE, project_id=row["project_id"])
    try:
        manager_api.delete_snapshot(ctx, backend_of(row["volume_host"]), row["id"])
    except exception.AttachdError as error:
        if _revert_if_unsent(row, Event.UNMANAGE_FAILED, error):
            raise


def force_delete(ctx: RequestContext, row: SnapshotWithVolumeRow) -> None:
    """Delete a snapshot in any state but that of a revert; see :func:`delete`."""
    try:
        delete(ctx, row)
    except exception.InvalidTransition:
        # Pending work of its backend ends first, and finds the snapshot in another state.
        snapshot_store.reset(row["id"], SnapshotState.ERROR)
        delete(ctx, row)


def _revert_if_unsent(row: SnapshotRow, event: Event, error: Exception) -> bool:
    """Record that a message was not sent; return whether that was still possible."""
    try:
        snapshot_store.transition(row["id"], event, {"error": str(error)})
    except (exception.InvalidTransition, exception.NotFound):
        return False
    return True

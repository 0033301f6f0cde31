# SPDX-License-Identifier: Apache-2.0
"""Actions of snapshots."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attachd import exception, notifications
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.snapshots import backend_calls, load, policy, schema
from attachd.context import RequestContext
from attachd.db.row_types import SnapshotWithVolumeRow
from attachd.db.volumes import snapshot_store
from attachd.states import SnapshotState

PATH: Final = "/snapshots/{snapshot_id}/action"

_SETTABLE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        SnapshotState.CREATING.value: frozenset({"creating", "available", "error"}),
        SnapshotState.DELETING.value: frozenset({"deleting", "error_deleting"}),
    }
)
"""The statuses that a user may set, by the present one."""


@action(
    PATH,
    "os-reset_status",
    policy=policy.RESET_STATUS,
    body=schema.RESET,
    doc=EndpointDoc(faults=(409,)),
)
def reset_status(ctx: RequestContext, snapshot_id: str, body: Mapping[str, str]) -> None:
    """Set a snapshot's status; the backend is not asked."""
    row = load.get(ctx, snapshot_id, policy.RESET_STATUS)
    status = body["status"].lower()
    if status not in snapshot_store.RESET_STATES:
        raise exception.InvalidInput(
            field="os-reset_status.status",
            value=status,
            reason=f"It can be reset to {', '.join(sorted(snapshot_store.RESET_STATES))}.",
        )
    zone = row["availability_zone"]
    notifications.snapshot("reset_status.start", row, zone)
    snapshot_store.reset(row["id"], status)
    notifications.snapshot("reset_status.end", snapshot_store.get(row["id"], None), zone)


@action(
    PATH,
    "os-force_delete",
    policy=policy.FORCE_DELETE,
    doc=EndpointDoc(faults=(409,)),
)
def force_delete(ctx: RequestContext, snapshot_id: str) -> None:
    """Delete a snapshot in any status; the value under the action's name is ignored."""
    backend_calls.force_delete(ctx, load.get(ctx, snapshot_id, policy.FORCE_DELETE))


@action(
    PATH,
    "os-update_snapshot_status",
    policy=policy.UPDATE_STATUS,
    body=schema.UPDATE_STATUS,
    doc=EndpointDoc(faults=(409,)),
)
def update_status(ctx: RequestContext, snapshot_id: str, body: Mapping[str, Any]) -> None:
    """Set the status of a snapshot that another service takes or deletes.

    The backends of this service do that by themselves: only an administrator's reset makes a
    snapshot wait for such a call.
    """
    row = load.get(ctx, snapshot_id, policy.UPDATE_STATUS)
    _check_settable(row, body["status"])
    snapshot_store.reset(row["id"], body["status"])
    if progress := (body.get("progress") or "").rstrip("%"):
        snapshot_store.update(row["id"], {"progress": int(progress)})


def _check_settable(row: SnapshotWithVolumeRow, status: str) -> None:
    allowed = _SETTABLE.get(row["state"], frozenset())
    if not allowed:
        raise exception.BadRequest(
            reason=f"Snapshot status {row['state']} not allowed for update_snapshot_status"
        )
    if status not in allowed:
        raise exception.BadRequest(
            reason=f"Provided snapshot status {status[:100]} not allowed for snapshot with status "
            f"{row['state']}."
        )
    if row["owner"] is not None:
        raise exception.BadRequest(
            reason=f"Snapshot {row['id']} is {row['state']} at its backend, which sets its status."
        )

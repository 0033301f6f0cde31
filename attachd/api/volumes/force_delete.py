# SPDX-License-Identifier: Apache-2.0
"""Deletion of volumes by force: DELETE with ``force`` and the action os-force_delete."""

import contextlib

import webob

from attachd import exception
from attachd.api import detach_guard, scheduler
from attachd.api.volumes import backend_calls
from attachd.context import RequestContext
from attachd.db.attachments import attachment_rows, attachment_store
from attachd.db.row_types import AttachmentRow
from attachd.db.volumes import volume_store
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api
from attachd.states import INACTIVE, WITH_ACCESS, AttachmentState, Event


def delete(
    ctx: RequestContext, volume: Volume, request: webob.Request, *, cascade: bool = False
) -> None:
    """Delete a volume in any status, unless it is attached.

    Hosts whose attach or detach did not finish lose their access first, so that nothing of the
    volume stays exported.

    :raises AttachmentInUse: a server uses it, according to Compute
    :param cascade: whether its snapshots are deleted with it
    :raises InvalidVolume: it is attached, or a clone of it is being made, or it has snapshots
    :raises DisconnectFailed: a host may still have access; the volume stays
    :raises Unavailable: its backend cannot be reached; the volume stays
    :raises BackendFrozen: its backend is frozen; nothing is changed
    """
    scheduler.check_not_frozen(volume.host)
    rows = attachment_store.list_of_volumes([volume.id])
    if attached := [row["id"] for row in rows if _may_have_device(row)]:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} is attached by {', '.join(attached[:5])}: detach "
            "it before it is deleted by force."
        )
    allowed_states = {
        row["id"]: detach_guard.check(ctx, request, Attachment.from_row(ctx, row))
        for row in attachment_rows.visible(rows)
    }
    for row in rows:
        # It may be deleted together with another one, or already.
        with contextlib.suppress(exception.NotFound):
            _remove_attachment(ctx, volume, row, allowed_states.get(row["id"]))
    try:
        backend_calls.delete(ctx, volume, cascade=cascade)
    except exception.InvalidTransition:
        # Pending work of its backend ends first, and finds the volume in another state.
        volume_store.reset(volume.id, "error", None)
        backend_calls.delete(ctx, volume, cascade=cascade)


def _may_have_device(row: AttachmentRow) -> bool:
    """Return whether a host has, or may have, a device: an agent reports its device late."""
    state = AttachmentState(row["state"])
    return state is AttachmentState.ATTACHED or (row["agent"] is not None and state in WITH_ACCESS)


def _remove_attachment(
    ctx: RequestContext,
    volume: Volume,
    row: AttachmentRow,
    allowed_states: detach_guard.AllowedStates,
) -> None:
    """Release or cancel an attachment without device, or have its host disconnected."""
    state = AttachmentState(row["state"])
    if state is AttachmentState.HELD:
        attachment_store.transition(row["id"], volume.id, Event.RELEASE)
    elif state is AttachmentState.RESERVED:
        attachment_store.transition(row["id"], volume.id, Event.CANCEL)
    elif state not in INACTIVE:
        known = {"id": row["id"], "volume_id": volume.id, "volume_host": volume.host}
        # The agent makes a device as soon as the attachment is connected.
        allowed = (
            allowed_states if row["agent"] is None else detach_guard.without_device(allowed_states)
        )
        manager_api.detach(ctx, Attachment.from_row(ctx, known), allowed)

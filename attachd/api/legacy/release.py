# SPDX-License-Identifier: Apache-2.0
"""Release of volumes by the older calls, attached or only held."""

from collections.abc import Callable
import contextlib

import webob

from attachd import exception
from attachd.api import detach_guard
from attachd.api.attachments import agent_detach, deletion
from attachd.api.legacy.holders import VolumeHolders
from attachd.context import RequestContext
from attachd.db.attachments import legacy
from attachd.db.row_types import AttachmentRow
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api


def release_callers(ctx: RequestContext, volume: Volume, holders: VolumeHolders) -> None:
    """Release what the caller has begun, with the connections opened for it.

    A connection that cannot be assigned to one caller stays open until its host is named.
    """
    callers = holders.for_caller(ctx, volume)
    alone = len(callers.holds) == 1 or not volume.multiattach
    unused = [row["id"] for row in callers.connections if row["parent_id"] is None]
    if unused and alone and not callers.used:
        manager_api.terminate_connections(ctx, volume, None, (), unused)
    legacy.release(volume.id, callers.hold_ids[:1])


def release_all(ctx: RequestContext, volume: Volume, holders: VolumeHolders) -> None:
    """Release a volume without attachments: all holds and connections of all callers."""
    if holders.connections:
        manager_api.terminate_connections(ctx, volume, None, ())
    legacy.release(volume.id, holders.hold_ids)


Delete = Callable[[RequestContext, webob.Request, Attachment, detach_guard.AllowedStates], object]
"""Deletes an attachment in the states that the guard allows."""


def force_delete(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
) -> None:
    """Delete in any state, and record the caller.

    The agent of a host still releases its device first; DELETE with ``force`` does without.
    """
    agent_detach.release_device(ctx, attachment, allowed_states)
    deletion.force_delete(ctx, request, attachment, allowed_states)


def remove(
    ctx: RequestContext,
    request: webob.Request,
    volume: Volume,
    holders: VolumeHolders,
    attachment_row: AttachmentRow,
    delete: Delete = deletion.delete,
) -> None:
    """Disconnect the attachment's host, and remove the attachment."""
    seen = {"volume_host": volume.host, "volume_status": volume.status}
    attachment = Attachment.from_row(ctx, {**attachment_row, **seen})
    # Another request may have deleted it already.
    with contextlib.suppress(exception.AttachmentNotFound):
        delete(ctx, request, attachment, holders.allowed_states.get(attachment.id))

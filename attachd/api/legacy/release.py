# SPDX-License-Identifier: Apache-2.0
"""Giving volumes back by the older calls, attached or merely taken; used by their handlers."""

from collections.abc import Callable
import contextlib

import webob

from attachd import exception
from attachd.api import detach_guard
from attachd.api.attachments import agent_detach, deletion
from attachd.api.legacy.holders import Row, VolumeHolders
from attachd.context import RequestContext
from attachd.db import legacy
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api


def release_callers(ctx: RequestContext, volume: Volume, holders: VolumeHolders) -> None:
    """Give back what the caller has begun, with what was opened for it.

    Where nobody can tell what was opened for whom, it stays open until its host is named.
    """
    begun = holders.for_caller(ctx, volume)
    alone = len(begun.holds) == 1 or not volume.multiattach
    unused = [row["id"] for row in begun.connections if row["serves"] is None]
    if unused and alone and not begun.used:
        manager_api.terminate_connections(ctx, volume, None, (), unused)
    legacy.release(volume.id, begun.hold_ids[:1])


def release_all(ctx: RequestContext, volume: Volume, holders: VolumeHolders) -> None:
    """Give a volume back that has no attachment, and leave nothing of what anybody has begun."""
    if holders.connections:
        manager_api.terminate_connections(ctx, volume, None, ())
    legacy.release(volume.id, holders.hold_ids)


def remove(
    ctx: RequestContext,
    request: webob.Request,
    volume: Volume,
    holders: VolumeHolders,
    chosen: Row,
) -> None:
    """Have the backend shut the attachment's hosts out, and remove it."""
    _remove(deletion.delete, ctx, request, volume, holders, chosen)


def remove_by_force(
    ctx: RequestContext,
    request: webob.Request,
    volume: Volume,
    holders: VolumeHolders,
    chosen: Row,
) -> None:
    """Do as :func:`remove`, whatever its state is, and have it on record who did.

    The agent of a host lets go first all the same: who does without that says so by DELETE.
    """
    _remove(_force_delete, ctx, request, volume, holders, chosen)


def _force_delete(
    ctx: RequestContext,
    request: webob.Request,
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
) -> None:
    agent_detach.release_device(ctx, attachment, allowed_states)
    deletion.force_delete(ctx, request, attachment, allowed_states)


def _remove(
    way: Callable[[RequestContext, webob.Request, Attachment, detach_guard.AllowedStates], object],
    ctx: RequestContext,
    request: webob.Request,
    volume: Volume,
    holders: VolumeHolders,
    chosen: Row,
) -> None:
    seen = {"volume_host": volume.host, "volume_status": volume.status}
    attachment = Attachment.from_row(ctx, {**chosen, **seen})
    # If somebody else was faster, it is as it should be.
    with contextlib.suppress(exception.AttachmentNotFound):
        way(ctx, request, attachment, holders.allowed_states.get(attachment.id))

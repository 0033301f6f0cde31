# SPDX-License-Identifier: Apache-2.0
"""Disconnecting what the agent of a host sees to: the host lets go first, and proves it.

Used by everything that deletes attachments.  The row says that the device is to go, the agent is
told to look, and only what it has proved to be gone is shut out by the backend.  What no agent was
ever told of is disconnected at once, but no longer than it stays like that.
"""

from collections.abc import Callable
import contextlib
from typing import Final, TypeVar

from oslo_log import log

from attachd import exception
from attachd.api import guard
from attachd.api.agents import presence
from attachd.api.async_response import AsyncPreference
from attachd.api.attachments import connection
from attachd.context import RequestContext
from attachd.db import due
from attachd.objects import Attachment
from attachd.rpc import agent_api
from attachd.states import REACHING, AttachmentState

LOG = log.getLogger(__name__)
T = TypeVar("T")

_ROUNDS: Final = 3
"""How many times is looked anew at an attachment that others move at the same time."""

_MAYBE_DONE: Final = (
    exception.AgentTimeout,
    exception.AttachmentNotFound,
    exception.InvalidTransition,
    exception.Unavailable,
)

_BY_FORCE: Final = (
    "What does not need the host's proof that the device is gone is DELETE "
    "/attachments/%s?force=true, for administrators, in attachd 1.0."
)


def disconnected(
    ctx: RequestContext, attachment: Attachment, allowed_states: guard.AllowedStates
) -> connection.Remaining:
    """Do as connecting.disconnected(), once the host has let go.

    :raises AgentAway: the host cannot be asked; nothing was done
    :raises HostError: the host keeps the device, with its reason; the attachment is attached
    :raises AgentTimeout: no answer in time; the work may go on
    """
    if attachment.agent is None:
        return connection.disconnected(ctx, attachment, allowed_states)
    try:
        return _again(ctx, attachment, lambda now: _disconnected(ctx, now, allowed_states))
    except _AlreadyDeleted:
        return connection.remaining_after_delete(attachment)


def disconnected_async(
    ctx: RequestContext,
    attachment: Attachment,
    allowed_states: guard.AllowedStates,
    ext_version: connection.ExtVersion,
    async_response: AsyncPreference,
) -> connection.Shown:
    """Do as connecting.disconnected_later(), once the host has let go.

    :raises AgentAway: the host cannot be asked; nothing was done
    """
    if attachment.agent is None:
        return connection.disconnected_async(
            ctx, attachment, allowed_states, ext_version, async_response
        )

    def disconnect(now: Attachment) -> connection.Shown:
        if not _may_have_device(now):
            allowed = guard.without_device(allowed_states)
            return connection.disconnected_async(ctx, now, allowed, ext_version, async_response)
        _withdraw(now, allowed_states)
        return connection.accepted(ctx, now, ext_version, async_response, connection.tell_agent)

    return _again(ctx, attachment, disconnect)


def release_device(
    ctx: RequestContext, attachment: Attachment, allowed_states: guard.AllowedStates
) -> None:
    """Have the host let go of a device that it may have, and wait for it.

    :raises: as :func:`disconnected`
    """
    with contextlib.suppress(_AlreadyDeleted):
        _again(ctx, attachment, lambda now: _release_device(ctx, now, allowed_states))


class _AlreadyDeleted(Exception):
    """The attachment has been removed since its host let go: by whoever was faster."""


def _again(ctx: RequestContext, attachment: Attachment, act: Callable[[Attachment], T]) -> T:
    """Act on an attachment as it is, and again when it has become something else meanwhile."""
    for _ in range(_ROUNDS - 1):
        try:
            return act(attachment)
        except exception.InvalidTransition as error:
            LOG.info("Attachment %s is looked at again: %s", attachment.id, error)
            attachment = Attachment.get(ctx, attachment.id)
    return act(attachment)


def _disconnected(
    ctx: RequestContext, attachment: Attachment, allowed_states: guard.AllowedStates
) -> connection.Remaining:
    had_device = _release_device(ctx, attachment, allowed_states)
    try:
        return connection.disconnected(ctx, attachment, guard.without_device(allowed_states))
    except exception.AttachmentNotFound as error:
        if had_device:
            raise _AlreadyDeleted from error
        raise


def _release_device(
    ctx: RequestContext, attachment: Attachment, allowed_states: guard.AllowedStates
) -> bool:
    """Tell whether there may have been a device, which is gone now."""
    if not _may_have_device(attachment):
        return False
    _withdraw(attachment, allowed_states)
    try:
        agent_api.look(ctx, str(attachment.agent), attachment.id)
    except exception.AgentAway as error:
        if _still_there(ctx, attachment):
            raise _unheard(attachment, error) from error
    except _MAYBE_DONE:
        # It may have said so to a manager all the same.
        if _still_there(ctx, attachment):
            raise
    else:
        _check_gone(ctx, attachment)
    return True


def _withdraw(attachment: Attachment, allowed_states: guard.AllowedStates) -> None:
    presence.check(str(attachment.agent), _BY_FORCE % attachment.id)
    due.withdraw(attachment.id, attachment.volume_id, allowed_states)


def _unheard(attachment: Attachment, error: exception.AgentAway) -> exception.AgentAway:
    noted = (
        f"Attachment {attachment.id} is detaching, which that agent does as soon as it is back."
    )
    return exception.AgentAway(f"{error} {noted}", **error.details)


def _check_gone(ctx: RequestContext, attachment: Attachment) -> None:
    """Make sure that the host has let go, whatever its agent has answered.

    :raises Conflict: it has not
    """
    now = _now(ctx, attachment)
    if _may_have_device(now):
        raise exception.Conflict(
            reason=f"Host {attachment.agent} has not let go of attachment {attachment.id}"
            f"{': ' + now.error if now.error else ''}. Look at it, and repeat the call."
        )


def _still_there(ctx: RequestContext, attachment: Attachment) -> bool:
    return _may_have_device(_now(ctx, attachment))


def _now(ctx: RequestContext, attachment: Attachment) -> Attachment:
    try:
        return Attachment.get(ctx, attachment.id)
    except exception.AttachmentNotFound as error:
        raise _AlreadyDeleted from error


def _may_have_device(attachment: Attachment) -> bool:
    return attachment.agent is not None and AttachmentState(attachment.state) in REACHING

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

_ATTEMPTS: Final = 3
"""How many times is looked anew at an attachment that others move at the same time."""

_OUTCOME_UNKNOWN: Final = (
    exception.AgentTimeout,
    exception.AttachmentNotFound,
    exception.InvalidTransition,
    exception.Unavailable,
)

_FORCE_HINT: Final = (
    "What does not need the host's proof that the device is gone is DELETE "
    "/attachments/%s?force=true, for administrators, in attachd 1.0."
)


def disconnect(
    ctx: RequestContext, attachment: Attachment, allowed_states: guard.AllowedStates
) -> connection.AttachmentsBody:
    """Do as connecting.disconnected(), once the host has let go.

    :raises AgentAway: the host cannot be asked; nothing was done
    :raises HostError: the host keeps the device, with its reason; the attachment is attached
    :raises AgentTimeout: no answer in time; the work may go on
    """
    if attachment.agent is None:
        return connection.disconnect(ctx, attachment, allowed_states)
    try:
        return _retry_on_transition(
            ctx, attachment, lambda now: _disconnect_released(ctx, now, allowed_states)
        )
    except _AlreadyDeleted:
        return connection.remaining_after_delete(attachment)


def disconnect_async(
    ctx: RequestContext,
    attachment: Attachment,
    allowed_states: guard.AllowedStates,
    ext_version: connection.ExtVersion,
    async_response: AsyncPreference,
) -> connection.AttachmentBody:
    """Do as connecting.disconnected_later(), once the host has let go.

    :raises AgentAway: the host cannot be asked; nothing was done
    """
    if attachment.agent is None:
        return connection.disconnect_async(
            ctx, attachment, allowed_states, ext_version, async_response
        )

    def disconnect(now: Attachment) -> connection.AttachmentBody:
        if not _may_have_device(now):
            allowed = guard.without_device(allowed_states)
            return connection.disconnect_async(ctx, now, allowed, ext_version, async_response)
        _withdraw(now, allowed_states)
        return connection.accept(ctx, now, ext_version, async_response, connection.notify_agent)

    return _retry_on_transition(ctx, attachment, disconnect)


def release_device(
    ctx: RequestContext, attachment: Attachment, allowed_states: guard.AllowedStates
) -> None:
    """Have the host let go of a device that it may have, and wait for it.

    :raises: as :func:`disconnect`
    """
    with contextlib.suppress(_AlreadyDeleted):
        _retry_on_transition(
            ctx, attachment, lambda now: _release_device(ctx, now, allowed_states)
        )


class _AlreadyDeleted(Exception):
    """The attachment has been removed since its host let go: by whoever was faster."""


def _retry_on_transition(
    ctx: RequestContext, attachment: Attachment, act: Callable[[Attachment], T]
) -> T:
    """Act on an attachment as it is, and again when it has become something else meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return act(attachment)
        except exception.InvalidTransition as error:
            LOG.info("Attachment %s is looked at again: %s", attachment.id, error)
            attachment = Attachment.get(ctx, attachment.id)
    return act(attachment)


def _disconnect_released(
    ctx: RequestContext, attachment: Attachment, allowed_states: guard.AllowedStates
) -> connection.AttachmentsBody:
    had_device = _release_device(ctx, attachment, allowed_states)
    try:
        return connection.disconnect(ctx, attachment, guard.without_device(allowed_states))
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
        agent_api.reconcile(ctx, str(attachment.agent), attachment.id)
    except exception.AgentAway as error:
        if _still_has_device(ctx, attachment):
            raise _detach_pending(attachment, error) from error
    except _OUTCOME_UNKNOWN:
        # It may have said so to a manager all the same.
        if _still_has_device(ctx, attachment):
            raise
    else:
        _check_released(ctx, attachment)
    return True


def _withdraw(attachment: Attachment, allowed_states: guard.AllowedStates) -> None:
    presence.check(str(attachment.agent), _FORCE_HINT % attachment.id)
    due.withdraw(attachment.id, attachment.volume_id, allowed_states)


def _detach_pending(attachment: Attachment, error: exception.AgentAway) -> exception.AgentAway:
    noted = (
        f"Attachment {attachment.id} is detaching, which that agent does as soon as it is back."
    )
    return exception.AgentAway(f"{error} {noted}", **error.details)


def _check_released(ctx: RequestContext, attachment: Attachment) -> None:
    """Make sure that the host has let go, whatever its agent has answered.

    :raises Conflict: it has not
    """
    now = _reload(ctx, attachment)
    if _may_have_device(now):
        raise exception.Conflict(
            reason=f"Host {attachment.agent} has not let go of attachment {attachment.id}"
            f"{': ' + now.error if now.error else ''}. Look at it, and repeat the call."
        )


def _still_has_device(ctx: RequestContext, attachment: Attachment) -> bool:
    return _may_have_device(_reload(ctx, attachment))


def _reload(ctx: RequestContext, attachment: Attachment) -> Attachment:
    try:
        return Attachment.get(ctx, attachment.id)
    except exception.AttachmentNotFound as error:
        raise _AlreadyDeleted from error


def _may_have_device(attachment: Attachment) -> bool:
    return attachment.agent is not None and AttachmentState(attachment.state) in REACHING

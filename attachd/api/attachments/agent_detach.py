# SPDX-License-Identifier: Apache-2.0
"""Detaching on hosts with an agent: the agent removes the device first, and proves it.

Used by every call that deletes attachments.  The row records that the device is to go, the agent
is asked to reconcile, and the backend revokes access only when the agent has proved that the
device is gone.  An attachment that no agent has taken up is disconnected at once, as long as it
stays so.  One of Compute is disconnected when its host has no device any more, as far as an agent
there reports it.
"""

from collections.abc import Callable
import contextlib
from typing import Final, TypeVar

from oslo_log import log

from attachd import exception
from attachd.api import detach_guard
from attachd.api.agents import device_check, presence, reconcile
from attachd.api.attachments import lifecycle
from attachd.api.endpoint import AsyncPreference
from attachd.context import RequestContext
from attachd.db.agents import agent_transitions
from attachd.db.attachments import async_requests
from attachd.objects import Attachment
from attachd.states import WITH_ACCESS, AttachmentState

LOG = log.getLogger(__name__)
T = TypeVar("T")

_ATTEMPTS: Final = 3
"""How many times an attachment is tried that other requests move at the same time."""

_PENDING: Final = frozenset({AttachmentState.WITHDRAWING})

_NO_AGENT_HINT: Final = (
    "If the host is dead, an administrator fences it, which ends its access with proof: attachd "
    "host fence {host}, or POST /hosts/{host}/fence in attachd 1.1. Without proof it is deleted "
    "by DELETE /attachments/{attachment_id}?force=true in attachd 1.0."
)
"""What can be done if the agent does not come back."""


def disconnect(
    ctx: RequestContext, attachment: Attachment, allowed_states: detach_guard.AllowedStates
) -> lifecycle.AttachmentsBody:
    """Do as lifecycle.disconnect(), after the host has released the device.

    :raises AgentUnavailable: the agent cannot be asked; nothing was changed
    :raises DeviceBusy: the host keeps the device, which is in use; the attachment is attached
    :raises AgentError: the host failed, with its reason; the attachment is detaching
    :raises AgentTimeout: no result in time; the work may go on
    :raises DevicePresent: the host has a device that no agent connected; nothing was changed
    """
    if attachment.agent is None:
        device_check.check_attachment(ctx, attachment)
        return lifecycle.disconnect(ctx, attachment, allowed_states)
    try:
        return _retry_on_transition(
            ctx, attachment, lambda current: _disconnect_released(ctx, current, allowed_states)
        )
    except _AlreadyDeleted:
        return lifecycle.remaining_after_delete(attachment)


def disconnect_async(
    ctx: RequestContext,
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
    async_response: AsyncPreference,
) -> lifecycle.AttachmentBody:
    """Do as lifecycle.disconnect_async(), after the host has released the device.

    :raises AgentUnavailable: the agent cannot be asked; nothing was changed
    :raises DevicePresent: as :func:`disconnect`
    """
    if attachment.agent is None:
        device_check.check_attachment(ctx, attachment)
        return lifecycle.disconnect_async(ctx, attachment, allowed_states, async_response)

    def disconnect(current: Attachment) -> lifecycle.AttachmentBody:
        if not _may_have_device(current):
            allowed = detach_guard.without_device(allowed_states)
            return lifecycle.disconnect_async(ctx, current, allowed, async_response)
        _withdraw(current, allowed_states)
        return lifecycle.accept(ctx, current, async_response, lifecycle.notify_agent)

    return _retry_on_transition(ctx, attachment, disconnect)


def request(
    ctx: RequestContext, attachment: Attachment, allowed_states: detach_guard.AllowedStates
) -> None:
    """Record that an attachment is to be removed, and notify its agent or manager.

    :raises: as :func:`disconnect_async`
    """
    if attachment.agent is None:
        device_check.check_attachment(ctx, attachment)
    _retry_on_transition(ctx, attachment, lambda current: _request(ctx, current, allowed_states))


def _request(
    ctx: RequestContext, attachment: Attachment, allowed_states: detach_guard.AllowedStates
) -> None:
    if attachment.error:
        agent_transitions.clear_error(attachment.id)  # A later one is of this attempt.
    if _may_have_device(attachment):
        _withdraw(attachment, allowed_states)
        lifecycle.notify(ctx, attachment, lifecycle.notify_agent)
        return
    if attachment.agent is not None:
        allowed_states = detach_guard.without_device(allowed_states)
    async_requests.disconnect(attachment.id, attachment.volume_id, allowed_states)
    lifecycle.notify(ctx, attachment)


def release_device(
    ctx: RequestContext,
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
    destination_id: str | None = None,
) -> None:
    """Have the host release a device that it may have, and wait for it.

    :param destination_id: as of async_requests.withdraw()
    :raises: as :func:`disconnect`
    """
    with contextlib.suppress(_AlreadyDeleted):
        _retry_on_transition(
            ctx,
            attachment,
            lambda current: _release_device(ctx, current, allowed_states, destination_id),
        )


class _AlreadyDeleted(Exception):
    """The attachment was deleted by another request after its host released the device."""


def _retry_on_transition(
    ctx: RequestContext, attachment: Attachment, act: Callable[[Attachment], T]
) -> T:
    """Act on an attachment, and again on its new state if another request moved it meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return act(attachment)
        except exception.InvalidTransition as error:
            LOG.info("Attachment %s: retrying after a concurrent change: %s", attachment.id, error)
            attachment = Attachment.get(ctx, attachment.id)
    return act(attachment)


def _disconnect_released(
    ctx: RequestContext, attachment: Attachment, allowed_states: detach_guard.AllowedStates
) -> lifecycle.AttachmentsBody:
    had_device = _release_device(ctx, attachment, allowed_states)
    try:
        return lifecycle.disconnect(ctx, attachment, detach_guard.without_device(allowed_states))
    except exception.AttachmentNotFound as error:
        if had_device:
            raise _AlreadyDeleted from error
        raise


def _release_device(
    ctx: RequestContext,
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
    destination_id: str | None = None,
) -> bool:
    """Have the host release its device; return whether it may have had one."""
    if not _may_have_device(attachment):
        return False
    # A host that is not asked to release the device would do it only with its next report.
    reconcile.check_may_wait(ctx, str(attachment.agent), attachment.volume_id)
    _withdraw(attachment, allowed_states, destination_id)
    try:
        reconcile.reconcile(ctx, attachment, _PENDING)
    except exception.AgentUnavailable as error:
        # The agent may have released the device before, with its report.
        if _still_has_device(ctx, attachment):
            raise _detach_pending(attachment, error) from error
    except exception.Unavailable:
        if _still_has_device(ctx, attachment):
            raise
    else:
        _check_released(ctx, attachment)
    return True


def _withdraw(
    attachment: Attachment,
    allowed_states: detach_guard.AllowedStates,
    destination_id: str | None = None,
) -> None:
    presence.check(str(attachment.agent), _no_agent_hint(attachment))
    async_requests.withdraw(attachment.id, attachment.volume_id, allowed_states, destination_id)


def _no_agent_hint(attachment: Attachment) -> str:
    return _NO_AGENT_HINT.format(host=attachment.agent, attachment_id=attachment.id)


def _detach_pending(
    attachment: Attachment, error: exception.AgentUnavailable
) -> exception.AgentUnavailable:
    noted = (
        f"Attachment {attachment.id} is detaching; the agent completes that as soon as it is "
        f"back. {_no_agent_hint(attachment)}"
    )
    return exception.AgentUnavailable(f"{error} {noted}", **error.details)


def _check_released(ctx: RequestContext, attachment: Attachment) -> None:
    """Check that the host has released its device.

    :raises DeviceBusy: it is in use
    :raises Conflict: another request has attached it again
    """
    current = _reload(ctx, attachment)
    if not _may_have_device(current):
        return
    if current.error:
        raise exception.DeviceBusy(current.error)
    raise exception.Conflict(
        reason=f"Host {attachment.agent} has not released the device of attachment "
        f"{attachment.id}. Check the host and repeat the call."
    )


def _still_has_device(ctx: RequestContext, attachment: Attachment) -> bool:
    return _may_have_device(_reload(ctx, attachment))


def _reload(ctx: RequestContext, attachment: Attachment) -> Attachment:
    try:
        return Attachment.get(ctx, attachment.id)
    except exception.AttachmentNotFound as error:
        raise _AlreadyDeleted from error


def _may_have_device(attachment: Attachment) -> bool:
    return attachment.agent is not None and AttachmentState(attachment.state) in WITH_ACCESS

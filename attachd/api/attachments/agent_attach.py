# SPDX-License-Identifier: Apache-2.0
"""Attaching on a host by its name, which the agent of that host does.

The volume is connected with the connector from the agent's report, as with any connector.  The
agent is then asked to reconcile, and makes the device.  If the agent reports that it cannot, the
attachment is removed.  If the outcome is unknown, the attachment stays and the work goes on.
"""

from collections.abc import Mapping
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.api.agents import presence, reconcile
from attachd.api.attachments import agent_detach, lifecycle, view
from attachd.api.endpoint import AsyncPreference
from attachd.api.idempotency import IdempotencyClaim
from attachd.context import RequestContext
from attachd.db.agents import orphan_devices
from attachd.objects import Attachment, Volume
from attachd.states import CONNECTOR_FIXED, ESTABLISHED, AttachmentState

LOG = log.getLogger(__name__)


_LEAVING: Final = frozenset(
    {
        AttachmentState.WITHDRAWING,
        AttachmentState.DISCONNECTING,
        AttachmentState.DISCONNECT_FAILED,
    }
)

_PENDING: Final = frozenset({AttachmentState.CONNECTING, AttachmentState.CONNECTED})

_NOT_ATTACHED: Final = frozenset(AttachmentState) - {AttachmentState.ATTACHED}


def check_fields(requested: Mapping[str, Any]) -> None:
    """Check a request that names a host.

    :param requested: ``attachment`` of the body, as its schema lets it through
    :raises InvalidInput: a connector is given as well
    """
    if requested.get("connector"):
        raise exception.InvalidInput(
            field="attachment.host",
            value=requested["host"],
            reason="Give either a host, whose agent attaches the volume, or an "
            "attachment.connector.",
        )


def attach(
    ctx: RequestContext,
    volume: Volume,
    requested: Mapping[str, Any],
    idempotency_claim: IdempotencyClaim | None,
    async_response: AsyncPreference | None,
) -> lifecycle.AttachmentBody:
    """Attach a volume on a host; return the attachment as it is then.

    A repeated request continues with the attachment that an earlier one has made.

    :param async_response: set if the caller asks not to wait: the answer shows the present state
    :raises AgentNotFound: no agent reports for the host
    :raises AgentUnavailable: the host's agent does not report
    :raises Conflict: another host has an orphan device of the volume
    :raises AgentError: the host could not attach; nothing is left
    :raises AgentTimeout: no result in time; the work may go on
    :raises: as lifecycle.get_or_create() and manager_api.attach()
    """
    connector = None
    attachment = lifecycle.find_earlier(ctx, idempotency_claim)
    if attachment is None:
        if async_response is None:
            reconcile.check_may_wait(ctx, requested["host"], volume.id)
        connector = presence.connector(requested["host"])
        if not volume.multiattach:
            orphan_devices.check_nowhere_else(volume.id, requested["host"])
        values = {**requested, "connector": connector}
        attachment = lifecycle.get_or_create(ctx, volume, values, idempotency_claim)
    state = AttachmentState(attachment.state)
    if state is AttachmentState.ATTACHED:
        return view.show(ctx, attachment)
    if state in _LEAVING:
        raise _deleted_conflict(attachment)
    if state not in CONNECTOR_FIXED:
        # An earlier run of the request may have stored one that the host has no more.
        attachment.connector = connector or presence.connector(requested["host"])
    if async_response is not None:
        return _connect_async(ctx, attachment, idempotency_claim, async_response)
    _connect(ctx, attachment, idempotency_claim)
    return _attach_on_host(ctx, attachment, idempotency_claim)


def _connect(
    ctx: RequestContext, attachment: Attachment, idempotency_claim: IdempotencyClaim | None
) -> None:
    if AttachmentState(attachment.state) in ESTABLISHED:
        return
    try:
        lifecycle.connect(ctx, attachment)
    except Exception:
        lifecycle.abandon(attachment, idempotency_claim)
        raise


def _connect_async(
    ctx: RequestContext,
    attachment: Attachment,
    idempotency_claim: IdempotencyClaim | None,
    async_response: AsyncPreference,
) -> lifecycle.AttachmentBody:
    if AttachmentState(attachment.state) in ESTABLISHED:
        return lifecycle.accept(ctx, attachment, async_response, lifecycle.notify_agent)
    try:
        return lifecycle.connect_shared(
            ctx, attachment, attachment.connector or {}, async_response
        )
    except Exception:
        lifecycle.abandon(attachment, idempotency_claim)
        raise


def _attach_on_host(
    ctx: RequestContext, attachment: Attachment, idempotency_claim: IdempotencyClaim | None
) -> lifecycle.AttachmentBody:
    """Have the agent make the device; return the attachment as it is then."""
    try:
        _reconcile(ctx, attachment)
    except exception.AgentError as error:
        _remove_failed(ctx, attachment, idempotency_claim, error)
        raise
    try:
        current = Attachment.get(ctx, attachment.id)
    except exception.AttachmentNotFound as error:
        raise _deleted_conflict(attachment) from error
    if AttachmentState(current.state) in _LEAVING:
        raise _deleted_conflict(attachment)
    return view.show(ctx, current)


def _reconcile(ctx: RequestContext, attachment: Attachment) -> None:
    try:
        reconcile.reconcile(ctx, attachment, _PENDING)
    except exception.AgentUnavailable as error:
        text = f"{error} {_pending_hint(attachment)}"
        raise exception.AgentUnavailable(text, **error.details) from error
    except exception.Unavailable as error:
        raise exception.Unavailable(reason=f"{error} {_pending_hint(attachment)}") from error


def _pending_hint(attachment: Attachment) -> str:
    return (
        f"Attachment {attachment.id} is attached as soon as the agent is back, unless it is "
        "deleted before."
    )


def _deleted_conflict(attachment: Attachment) -> exception.Conflict:
    return exception.Conflict(
        reason=f"Attachment {attachment.id} is being deleted or was deleted. Repeat the "
        "request to attach the volume."
    )


def _remove_failed(
    ctx: RequestContext,
    attachment: Attachment,
    idempotency_claim: IdempotencyClaim | None,
    cause: exception.AgentError,
) -> None:
    """Remove an attachment whose host reported that it cannot make the device.

    The host is asked once more, so that it does not try again while the backend revokes its
    access.

    :raises AttachFailed: the attachment could not be removed
    """
    try:
        agent_detach.disconnect(ctx, Attachment.get(ctx, attachment.id), _NOT_ATTACHED)
    except exception.AttachmentNotFound:
        pass
    except exception.AttachdError as error:
        raise exception.AttachFailed(
            volume_id=attachment.volume_id,
            cause=cause,
            left=f"attachment {attachment.id} is still there: {error}",
            finish=f"DELETE /attachments/{attachment.id}",
        ) from error
    lifecycle.release_claim(idempotency_claim)

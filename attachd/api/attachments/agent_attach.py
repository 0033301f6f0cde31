# SPDX-License-Identifier: Apache-2.0
"""Attaching to a host by its name, which an agent does there.

The volume is connected with what the agent says of its host, as with any connector.  Then the
agent is told to look, and makes the device.  Whatever it cannot do is taken back; what nobody can
tell the end of is left as it is, and goes on.
"""

from collections.abc import Mapping
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.api.agents import presence
from attachd.api.async_response import AsyncPreference
from attachd.api.attachments import agent_detach, connection, reservation
from attachd.api.attachments.connection import ExtVersion
from attachd.api.idempotency import IdempotencyClaim
from attachd.context import RequestContext
from attachd.objects import Attachment, Volume
from attachd.rpc import agent_api
from attachd.states import WANTED, AttachmentState

LOG = log.getLogger(__name__)

HOST_FIELD: Final = "host"

_LEAVING: Final = frozenset(
    {
        AttachmentState.WITHDRAWING,
        AttachmentState.DISCONNECTING,
        AttachmentState.DISCONNECT_FAILED,
    }
)

_NOT_ATTACHED: Final = frozenset(AttachmentState) - {AttachmentState.ATTACHED}


def check_fields(wanted: Mapping[str, Any], ext_version: ExtVersion) -> None:
    """Let a request pass that names a host.

    :param wanted: ``attachment`` of the body, as its schema lets it through
    :param ext_version: the version of attachd's own API that is asked for
    :raises InvalidInput: nothing may be said of it, or it names a connector as well
    """
    if ext_version is None:
        raise _invalid_host(wanted, "It needs the header OpenStack-API-Version: attachd 1.0.")
    if wanted.get("connector"):
        raise _invalid_host(
            wanted,
            "Name a host, whose agent attaches, or give the attachment.connector of your own one: "
            "one of them.",
        )


def _invalid_host(wanted: Mapping[str, Any], reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(
        field=f"attachment.{HOST_FIELD}", value=wanted[HOST_FIELD], reason=reason
    )


def attach(
    ctx: RequestContext,
    volume: Volume,
    wanted: Mapping[str, Any],
    ext_version: ExtVersion,
    idempotency_claim: IdempotencyClaim | None,
    async_response: AsyncPreference | None,
) -> connection.AttachmentBody:
    """Have a host attach a volume, and answer the attachment as it is then.

    Whoever repeats the request goes on with what there is of it.

    :param async_response: where the caller prefers not to wait: then it tells the state now
    :raises AgentNotFound: nobody knows the host
    :raises AgentAway: its agent does not report
    :raises Conflict: another host has a device of the volume that nobody remembers
    :raises HostError: the host could not; nothing is left
    :raises AgentTimeout: no answer in time; the work may go on
    :raises: as reservation.make() and manager_api.attach()
    """
    attachment = reservation.find_earlier(ctx, idempotency_claim)
    if attachment is None:
        connector = presence.connector(wanted[HOST_FIELD])
        if not volume.multiattach:
            presence.check_nowhere_else(volume.id, wanted[HOST_FIELD])
        values = {**wanted, "connector": connector}
        attachment = reservation.get_or_create(
            ctx, volume, values, ext_version, idempotency_claim, wanted[HOST_FIELD]
        )
    state = AttachmentState(attachment.state)
    if state is AttachmentState.ATTACHED:
        return connection.shown(ctx, attachment, ext_version)
    if state in _LEAVING:
        raise _deleted_conflict(attachment)
    if async_response is not None:
        return _connect_async(ctx, attachment, ext_version, idempotency_claim, async_response)
    _connect(ctx, attachment, idempotency_claim)
    return _attach_on_host(ctx, attachment, ext_version, idempotency_claim)


def _connect(
    ctx: RequestContext, attachment: Attachment, idempotency_claim: IdempotencyClaim | None
) -> None:
    if AttachmentState(attachment.state) in WANTED:
        return
    try:
        connection.connect(ctx, attachment)
    except Exception:
        reservation.abandon(attachment, idempotency_claim)
        raise


def _connect_async(
    ctx: RequestContext,
    attachment: Attachment,
    ext_version: ExtVersion,
    idempotency_claim: IdempotencyClaim | None,
    async_response: AsyncPreference,
) -> connection.AttachmentBody:
    if AttachmentState(attachment.state) in WANTED:
        return connection.accept(
            ctx, attachment, ext_version, async_response, connection.notify_agent
        )
    try:
        return connection.connect_shared(
            ctx, attachment, attachment.connector or {}, ext_version, async_response
        )
    except Exception:
        reservation.abandon(attachment, idempotency_claim)
        raise


def _attach_on_host(
    ctx: RequestContext,
    attachment: Attachment,
    ext_version: ExtVersion,
    idempotency_claim: IdempotencyClaim | None,
) -> connection.AttachmentBody:
    """Have the agent make the device, and answer the attachment as it is then."""
    try:
        _reconcile(ctx, attachment)
    except exception.HostError as error:
        # Who repeats a request may hear of trouble with a device that is there.
        if _current_state(ctx, attachment) is not AttachmentState.ATTACHED:
            _remove_failed(ctx, attachment, idempotency_claim, error)
            raise
        LOG.warning("Attachment %s is attached, although: %s", attachment.id, error)
    try:
        now = Attachment.get(ctx, attachment.id)
    except exception.AttachmentNotFound as error:
        raise _deleted_conflict(attachment) from error
    if AttachmentState(now.state) in _LEAVING:
        raise _deleted_conflict(attachment)
    return connection.shown(ctx, now, ext_version)


def _reconcile(ctx: RequestContext, attachment: Attachment) -> None:
    host = str(attachment.agent)
    try:
        agent_api.reconcile(ctx, host, attachment.id)
    except exception.AgentTimeout:
        # Its answer may be lost, and a manager has heard of the device all the same.
        if _current_state(ctx, attachment) is not AttachmentState.ATTACHED:
            raise
    except exception.AgentAway as error:
        raise presence.away(host, error.details["since"], _pending_hint(attachment)) from error
    except (exception.InvalidTransition, exception.AttachmentNotFound) as error:
        LOG.info("Attachment %s has changed under its agent: %s", attachment.id, error)
    except exception.Unavailable as error:
        raise exception.Unavailable(reason=f"{error} {_pending_hint(attachment)}") from error


def _current_state(ctx: RequestContext, attachment: Attachment) -> AttachmentState | None:
    try:
        return AttachmentState(Attachment.get(ctx, attachment.id).state)
    except exception.AttachmentNotFound:
        return None


def _pending_hint(attachment: Attachment) -> str:
    return (
        f"Attachment {attachment.id} waits for it, and is attached as soon as it is back, unless "
        "it is deleted before."
    )


def _deleted_conflict(attachment: Attachment) -> exception.Conflict:
    return exception.Conflict(
        reason=f"Attachment {attachment.id} is being deleted, or has been. Repeat the request if "
        "the volume is still to be attached."
    )


def _remove_failed(
    ctx: RequestContext,
    attachment: Attachment,
    idempotency_claim: IdempotencyClaim | None,
    cause: exception.HostError,
) -> None:
    """Remove an attachment whose host has said that it cannot make the device.

    It is asked once more, so that it does not try again while the backend shuts it out.

    :raises AttachFailed: it could not be removed
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
    reservation.release_claim(idempotency_claim)

# SPDX-License-Identifier: Apache-2.0
"""The life of an attachment: reserve, connect, disconnect or cancel, and notify; for handlers.

A reservation is a row that no backend knows of.  A synchronous connect or disconnect waits for
the manager's answer.  An asynchronous one records the request in the row and notifies the
manager; if that message is lost, recovery finds the row.  The same holds for the agent of a host
(agent_detach.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
import contextlib
import dataclasses
import datetime
import functools
from typing import Any, Final

from oslo_log import log

from attachd import exception, notifications
from attachd.api import idempotency, policy_rules
from attachd.api.agents import reconcile
from attachd.api.attachments import policy, view
from attachd.api.endpoint import AsyncPreference
from attachd.api.idempotency import AlreadyMade, IdempotencyClaim
from attachd.api.volumes import policy as volume_policy
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import models
from attachd.db.attachments import (
    async_requests,
    attachment_moves,
    attachment_queries,
    attachment_rows,
    connect_rules,
    duplicates,
)
from attachd.db.row_types import AttachmentRow
from attachd.db.types import type_store
from attachd.objects import Attachment, NewAttachment, Volume
from attachd.rpc import agent_api, bulkheads, manager_api
from attachd.states import INACTIVE, AttachmentState
from attachd.telemetry import metrics

LOG = log.getLogger(__name__)

Connector = dict[str, Any]
AttachmentBody = dict[str, view.Detail]
DOC: Final = view.ONE_DOC._replace(faults=(409, 429, 504))
AttachmentsBody = dict[str, list[view.Summary]]
EXPIRES_IN: Final = "expires_in"


def get_or_create(
    ctx: RequestContext,
    volume: Volume,
    requested: Mapping[str, Any],
    idempotency_claim: IdempotencyClaim | None = None,
) -> Attachment:
    """Reserve a volume, or return the attachment that an earlier run of the request has made.

    :param requested: as of :func:`new_attachment`
    :param idempotency_claim: of the request's key
    :raises: as Attachment.reserve()
    """
    if (earlier := find_earlier(ctx, idempotency_claim)) is not None:
        return earlier
    expires_at = expiry_time(ctx, requested)
    check_requested_mode(volume, requested.get("mode"))
    new = new_attachment(ctx, volume, requested)
    new = dataclasses.replace(new, expires_at=expires_at, idempotency_claim=idempotency_claim)
    made = Attachment.reserve(ctx, volume, new)
    if made.move_from is not None:
        ends = attachment_moves.ends(made.move_from, made.id)
        notifications.volume("attach.move.start", volume.id, move=ends)
    if idempotency_claim is not None:
        idempotency_claim.held = True
    return made


def new_attachment(
    ctx: RequestContext, volume: Volume, requested: Mapping[str, Any]
) -> NewAttachment:
    """Return what is requested, without its expiry and its key.

    :param requested: ``attachment`` of the body, with its ids as rows have them, and for ``host``
        with the connector of its agent
    """
    return NewAttachment(
        instance_uuid=requested.get("instance_uuid"),
        mode=requested.get("mode"),
        connector=requested.get("connector"),
        agent=requested.get("host"),
        move_from=requested.get("move_from"),
        denied_rule=sharing_denied_rule(ctx, volume),
    )


def find_earlier(
    ctx: RequestContext, idempotency_claim: IdempotencyClaim | None
) -> Attachment | None:
    """Return the attachment that an earlier run of the same request has made, or None.

    :raises KeyResourceGone: it is deleted
    """
    return idempotency.find_created(
        idempotency_claim,
        "attachment",
        lambda: Attachment.get(ctx, idempotency_claim.resource_id if idempotency_claim else ""),
    )


def reconnect_denied_rule(ctx: RequestContext, attachment: Attachment) -> str | None:
    """Return the rule that denies sharing the volume, when a failed connect is repeated; or None.

    A failed attachment no longer holds the volume, so policy is asked again.  A reservation was
    checked when it was made.
    """
    if AttachmentState(attachment.state) not in INACTIVE:
        return None
    return sharing_denied_rule(ctx, Volume.get(ctx, attachment.volume_id))


def cancel(attachment: Attachment) -> list[AttachmentRow] | None:
    """Cancel an attachment that is only a reservation.

    :returns: the rows of the volume's remaining attachments; None: it is more than a reservation
    """
    if not _cancel(attachment):
        return None
    rows = attachment_queries.list_of_volumes([attachment.volume_id])[attachment.volume_id]
    notify_cancelled(attachment, rows)
    return rows


def abandon(attachment: Attachment, idempotency_claim: IdempotencyClaim | None = None) -> None:
    """Cancel a reservation that this request has made, unless it is connected meanwhile.

    :param idempotency_claim: of the request's key: a repeated request may reserve again
    """
    with contextlib.suppress(exception.AttachdError, AlreadyMade):
        if idempotency_claim is None:
            _cancel(attachment)
        elif attachment.wire_state == "reserved":
            idempotency_claim.release()
            if not _cancel(attachment):
                idempotency_claim.take_back()


def release_claim(idempotency_claim: IdempotencyClaim | None) -> None:
    """Let a repeated request create again what was created for its key and removed."""
    if idempotency_claim is not None:
        with contextlib.suppress(AlreadyMade):
            idempotency_claim.release()
            idempotency_claim.held = False


def _cancel(attachment: Attachment) -> bool:
    if attachment.wire_state != "reserved":
        return False
    try:
        attachment.cancel()
    except exception.InvalidTransition:
        return False  # It is connected or deleted meanwhile.
    return True


def sharing_denied_rule(ctx: RequestContext, volume: Volume) -> str | None:
    """Return the rule that denies the caller to share a volume with others, or None.

    Whether the volume has other holders is checked later, under a row lock.
    """
    if not volume.multiattach:
        return None
    required = [volume_policy.MULTIATTACH, *([policy.BOOTABLE] if volume.bootable else [])]
    owner = {"project_id": volume.project_id, "user_id": volume.user_id}
    return next((rule for rule in required if not policy_rules.allows(ctx, rule, owner)), None)


def check_requested_mode(volume: Volume, mode: str | None) -> None:
    """Refuse a request to write to a volume that no attachment may write to.

    :param mode: "rw", "ro", or None: as much as is allowed
    :raises InvalidVolumeAttachMode: with what forbids it
    """
    if mode != "rw":
        return
    specs = type_store.get(volume.volume_type_id)["extra_specs"] if volume.volume_type_id else {}
    row: Any = {"id": volume.id, "admin_metadata": volume.admin_metadata, "type_specs": specs}
    no_attachment: Any = {}
    connect_rules.decide_mode(row, no_attachment, (), mode)


def expiry_time(ctx: RequestContext, requested: Mapping[str, Any]) -> datetime.datetime | None:
    """Return when a new reservation expires; None: never.

    [api]reservation_ttl is the default and the limit; callers under attachd 1.0 can ask for less.
    The manager removes expired reservations (manager/periodic_tasks/purge.py).  Those of Compute
    stay: a shelved server has them for weeks, and a migration reserves before it connects.

    :param requested: ``attachment`` of the body, as its schema lets it through
    :raises InvalidInput: the time is too long, or the attachment is connected at once
    """
    seconds = requested.get(EXPIRES_IN)
    fields = {**requested, "by_service": ctx.by_service}
    is_kept = seconds is None and attachment_rows.is_of_compute(fields)
    maximum = 0 if is_kept else CONF.api.reservation_ttl
    if seconds is not None and requested.get("connector"):
        raise _invalid_expiry(seconds, "An attachment connected at once does not expire: omit it.")
    if seconds is not None and 0 < maximum < seconds:
        raise _invalid_expiry(seconds, f"Reservations last {maximum} seconds, at most.")
    lifetime = seconds or maximum
    return models.now() + datetime.timedelta(seconds=lifetime) if lifetime else None


def _invalid_expiry(seconds: Any, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=f"attachment.{EXPIRES_IN}", value=seconds, reason=reason)


def check_no_agent(attachment: Attachment) -> None:
    """Check that no agent connects and completes the attachment.

    :raises Conflict: an agent does
    """
    if attachment.agent is not None:
        raise exception.Conflict(
            reason=f"Attachment {attachment.id} is connected and completed only by the agent of "
            f"host {attachment.agent}."
        )


def connect(ctx: RequestContext, attachment: Attachment) -> None:
    """Connect with the connector of the attachment.

    :raises: as manager_api.attach()
    """
    denied_rule = reconnect_denied_rule(ctx, attachment)
    manager_api.attach(ctx, attachment, attachment.connector or {}, denied_rule)


def connect_shared(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    async_response: AsyncPreference | None,
) -> AttachmentBody:
    """Connect, also if the same server has other connections; the answer shows the state before.

    :param async_response: set if the caller asks not to wait: the answer shows the present state
    :raises: as manager_api.attach()
    """
    denied_rule = reconnect_denied_rule(ctx, attachment)
    if async_response is not None:
        what = (attachment.id, attachment.volume_id, connector, denied_rule)
        note = functools.partial(async_requests.connect_shared, *what)
        return _connect_async(ctx, attachment, connector, async_response, note)
    answer = manager_api.attach(ctx, attachment, connector, denied_rule)
    try:
        _define_secret(ctx, attachment, answer)
    except Exception:
        # The caller does not learn the id of the attachment.
        with contextlib.suppress(exception.AttachdError):
            manager_api.detach(ctx, attachment, None)
        raise
    if attachment.wire_state == "error_attaching":  # An earlier run of this request failed.
        attachment.state = AttachmentState.RESERVED.value
    return view.show_connected(ctx, attachment, answer, connector)


def connect_exclusive(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    denied_rule: str | None,
    async_response: AsyncPreference | None,
) -> AttachmentBody:
    """Do as :func:`connect_shared`, if a volume that is not multiattach has no other connection.

    :param denied_rule: as of manager_api.attach()
    """
    if async_response is not None:
        what = (attachment.id, attachment.volume_id, connector, denied_rule)
        note = functools.partial(async_requests.connect_exclusive, *what)
        return _connect_async(ctx, attachment, connector, async_response, note)
    answer = manager_api.attach_exclusive(ctx, attachment, connector, denied_rule)
    _define_secret(ctx, attachment, answer)
    return view.show_connected(ctx, attachment, answer, connector)


def _define_secret(
    ctx: RequestContext, attachment: Attachment, answer: manager_api.Connected
) -> None:
    """Wait until Compute can use a connection; raises as reconcile.define_secret()."""
    needs_secret = answer["connection_info"]["data"].get("secret_uuid") is not None
    if needs_secret and ctx.by_service and attachment.instance_uuid:
        reconcile.define_secret(ctx, attachment)


def check_backlog(project_id: str) -> None:
    """Check that a project may request more work without waiting for it.

    :raises TooManyCalls: too much of its work is pending
    """
    limit = CONF.api.max_pending_per_project
    if not limit or (pending := async_requests.count_pending(project_id)) < limit:
        return
    metrics.count(metrics.RPC_REFUSED, bulkheads.BACKLOG)
    raise exception.TooManyCalls(
        reason=f"Project {project_id} has {pending} attachments that are being connected or "
        f"disconnected, and may have {limit} ([api]max_pending_per_project) when it does not wait "
        "for the answer. Wait until some of them are done, or send the request without Prefer: "
        "respond-async."
    )


def _connect_async(
    ctx: RequestContext,
    attachment: Attachment,
    connector: Connector,
    async_response: AsyncPreference,
    note: Callable[[], None],
) -> AttachmentBody:
    try:
        note()
    except duplicates.AlreadyConnected as repeated:
        row = repeated.row
        info: Any = row["connection_info"]  # may be encrypted, as in the answer of a manager
        answer = manager_api.Connected(
            connection_info=info, mode=str(row["mode"]), is_repeated=True
        )
        return view.show_connected(ctx, attachment, answer, connector)
    return accept(ctx, attachment, async_response)


def disconnect(
    ctx: RequestContext, attachment: Attachment, allowed_states: Collection[str] | None
) -> AttachmentsBody:
    """Disconnect and remove an attachment; return those that remain.

    :param allowed_states: as the guard returned it, where it was asked
    :raises: as manager_api.detach()
    """
    return view.list_remaining(manager_api.detach(ctx, attachment, allowed_states))


def remaining_after_delete(attachment: Attachment) -> AttachmentsBody:
    """Return the remaining attachments after another request has deleted this one."""
    rows = attachment_queries.list_of_volumes([attachment.volume_id])
    return view.list_summaries(rows[attachment.volume_id])


def disconnect_async(
    ctx: RequestContext,
    attachment: Attachment,
    allowed_states: Collection[str] | None,
    async_response: AsyncPreference,
) -> AttachmentBody:
    """Record that an attachment is to be disconnected; return it as it is until then.

    :raises: as async_requests.disconnect()
    """
    async_requests.disconnect(attachment.id, attachment.volume_id, allowed_states)
    return accept(ctx, attachment, async_response)


Notifier = Callable[[RequestContext, Attachment], None]
"""Sends the message that a row has work pending."""


def _request_pending(ctx: RequestContext, attachment: Attachment) -> None:
    manager_api.process_pending(ctx, attachment)


def notify_agent(ctx: RequestContext, attachment: Attachment) -> None:
    """Ask the agent to reconcile soon; raises as agent_api.reconcile()."""
    agent_api.reconcile(ctx, str(attachment.agent), attachment.id)


def accept(
    ctx: RequestContext,
    attachment: Attachment,
    async_response: AsyncPreference,
    notifier: Notifier = _request_pending,
) -> AttachmentBody:
    """Notify the manager or agent of pending work; return the attachment as it is until then."""
    shown = view.show_accepted(ctx, Attachment.get(ctx, attachment.id))
    notify(ctx, attachment, notifier)
    async_response.accept("attachments", attachment.id)
    return shown


def notify(
    ctx: RequestContext, attachment: Attachment, notifier: Notifier = _request_pending
) -> None:
    """Notify the manager or agent of pending work; a failure is logged, as recovery finds it."""
    try:
        notifier(ctx, attachment)
    except (exception.Unavailable, exception.AgentUnavailable) as error:
        LOG.warning(
            "Attachment %s: notification failed, recovery will find the row: %s",
            attachment.id,
            error,
        )


# Notifications of changes that the API makes without the manager, which notifies of its own.


def notify_completed(attachment: Attachment, before: str) -> None:
    """Notify that a volume is attached.

    :param before: the attachment's state until now
    """
    if before == AttachmentState.ATTACHED:
        return  # The notification was sent when it became attached.
    if before == AttachmentState.RESERVED:  # the manager has sent no attach.start
        notifications.volume("attach.start", attachment.volume_id)
    notifications.volume("attach.end", attachment.volume_id)


def notify_legacy_attach(volume: Volume) -> None:
    """Notify that a caller reports a volume as attached, by the older calls.

    :param volume: as it was before; a repeated report is not notified
    """
    if volume.multiattach or volume.status != "in-use":
        notifications.volume("attach.start", volume.id, {"status": volume.status})
        notifications.volume("attach.end", volume.id)


def notify_cancelled(attachment: Attachment, remaining: Sequence[AttachmentRow]) -> None:
    """Notify that a reservation was cancelled.

    :param remaining: the rows of the volume's other attachments
    """
    before = {"status": attachment.volume_status}
    given_up: Any = {name: getattr(attachment, name) for name in notifications.ATTACHMENT_COLUMNS}
    notifications.volume("detach.start", attachment.volume_id, before, [given_up, *remaining])
    notifications.volume("detach.end", attachment.volume_id, attachments=remaining)

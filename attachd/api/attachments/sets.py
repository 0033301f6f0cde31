# SPDX-License-Identifier: Apache-2.0
"""Sets of attachments: attach volumes on a host, or detach them, by one request of attachd 1.1.

Managers and agents work on all at the same time; the request waits for the results in the rows.
What the process of the API leaves when it ends is finished by them; a set that is attached as a
whole or not at all is undone by them then, see db/attachments/attachment_sets.py.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import time
from typing import Any, Final, NamedTuple
import uuid

import webob

from attachd import exception
from attachd.api import detach_guard, idempotency, validation
from attachd.api import microversions as mv
from attachd.api.agents import presence, reconcile
from attachd.api.attachments import (
    agent_detach,
    deletion,
    lifecycle,
    policy,
    set_progress,
    set_schema,
)
from attachd.api.attachments.set_progress import Member, Result
from attachd.api.endpoint import EndpointDoc, action, endpoint
from attachd.api.idempotency import IdempotencyClaim
from attachd.closed_hosts import detaches, set_undo
from attachd.context import RequestContext
from attachd.db import models
from attachd.db.agents import orphan_devices
from attachd.db.attachments import (
    async_requests,
    attachment_queries,
    attachment_sets,
    deleted_attachments,
    duplicates,
)
from attachd.db.attachments.attachment_store import Reservation
from attachd.db.row_types import AttachmentRow
from attachd.objects import Attachment, Volume
from attachd.rpc import bulkheads
from attachd.states import CONNECTOR_FIXED, ESTABLISHED, AttachmentState

PATH: Final = "/attachments/action"
Body = dict[str, Any]
Connector = dict[str, Any]
Results = dict[str, list[Result]]
Rows = Mapping[str, AttachmentRow]

_DOC: Final = EndpointDoc({"results": list[Result]}, faults=(409, 429, 504))
_RENEWAL: Final = 5.0
"""Seconds after which the row of a set is renewed."""
_FAILURES: Final = (exception.AgentError, exception.ConnectFailed)
"""Errors after which an attachment is removed: it is sure that its host has no device."""


class _Asked(NamedTuple):
    """A volume that is to be attached.

    :ivar mode: "rw", "ro", or None: as much as is allowed
    """

    member: Member
    mode: str | None


def _keep_answer(answer: Results) -> Results | None:
    """Return the answer; None: a volume may be attached when the request is repeated."""
    failed = [result["error"] for result in answer["results"] if result["error"] is not None]
    return answer if all(idempotency.is_final(error["code"]) for error in failed) else None


def _replay_answer(_ctx: RequestContext, _set_id: str, kept: Results) -> Results:
    return kept


@endpoint(
    "POST",
    PATH,
    since=mv.NEW_ATTACH,
    policy=policy.CREATE,
    body=set_schema.ATTACH,
    action="attach_set",
    attachd_since=mv.ATTACHD_1_1,
    idempotent=idempotency.IdempotencySpec(_keep_answer, _replay_answer),
    doc=_DOC,
)
def attach_set(
    ctx: RequestContext, body: Body, idempotency_claim: IdempotencyClaim | None = None
) -> Results:
    """Attach several volumes on a host, each for itself, or as a whole or not at all (atomic).

    An attachment whose connect or device has failed is removed.  One whose outcome is unknown
    stays and goes on; of an atomic set it is removed, too.
    """
    ctx.authorize(policy.CREATE_ON_HOST)
    host, volumes = body["host"], body["volumes"]
    set_id = models.new_id() if idempotency_claim is None else idempotency_claim.resource_id
    ids = _distinct("volumes", [item["volume_uuid"] for item in volumes])
    members = [Member(volume_id, _attachment_id(set_id, volume_id), host) for volume_id in ids]
    modes = [item.get("mode") for item in volumes]
    asked = list(map(_Asked, members, modes))
    with bulkheads.slot(reconcile.server_name(host), None, ctx.project_id):
        if body["atomic"]:
            _attach_all(ctx, set_id, asked, presence.connector(host), idempotency_claim)
        else:
            is_repeated = idempotency_claim is not None and idempotency_claim.repeated
            _attach_each(ctx, host, asked, _list_earlier(members) if is_repeated else {})
    return _show(members)


@action(
    PATH,
    "detach_set",
    since=mv.NEW_ATTACH,
    policy=policy.DELETE,
    body=set_schema.DETACH,
    status=200,
    attachd_since=mv.ATTACHD_1_1,
    doc=_DOC,
)
def detach_set(ctx: RequestContext, body: Body, request: webob.Request) -> Results:
    """Detach several attachments, each for itself."""
    members = [Member(None, item) for item in _distinct("attachments", body["attachments"])]
    # Slow hosts of one project must not open the circuit breaker for others.
    agents = f"the agents of the hosts of project {ctx.project_id}"
    with bulkheads.slot(agents, None, ctx.project_id):
        for member in members:
            with _noting_error(member):
                _request_removal(ctx, request, member)
        set_progress.wait(members, set_progress.is_removed, lambda _failed: True)
    ids = [member.attachment_id for member in members]
    shown = zip(_show(members)["results"], ids, strict=True)
    return {"results": [{**result, "attachment_id": item} for result, item in shown]}


def _request_removal(ctx: RequestContext, request: webob.Request, member: Member) -> None:
    attachment = deletion.load(ctx, member.attachment_id)
    ctx.authorize(policy.DELETE, attachment)
    member.volume_id, member.host = attachment.volume_id, attachment.agent
    allowed_states = detach_guard.check(ctx, request, attachment)
    if lifecycle.cancel(attachment) is None:
        agent_detach.request(ctx, attachment, allowed_states)


def _distinct(field: str, ids: Sequence[str]) -> list[str]:
    """Return ids in the form that rows have; raise InvalidInput: one is there twice."""
    found = [validation.canonical(item) for item in ids]
    for number, item in enumerate(found):
        if item in found[:number]:
            raise exception.InvalidInput(
                field=f"{field}.{number}", value=item, reason="It is there twice: leave it out."
            )
    return found


def _attachment_id(set_id: str, volume_id: str) -> str:
    """Return the id of an attachment, which is the same when the request is repeated."""
    return str(uuid.uuid5(uuid.UUID(set_id), volume_id))


def _show(members: Sequence[Member]) -> Results:
    rows = attachment_queries.list_by_ids([member.attachment_id for member in members])
    return {"results": [set_progress.show(member, rows) for member in members]}


@contextlib.contextmanager
def _noting_error(member: Member) -> Iterator[None]:
    try:
        yield
    except exception.AttachdError as error:
        member.error = error


# ---- Each for itself ----


def _list_earlier(members: Sequence[Member]) -> Rows:
    """Return the attachments that earlier runs of a request have made, by their ids.

    A volume that was attached and has been detached since is not attached again; that is stored
    as its error.  It is known as long as the events of the attachment are kept.
    """
    ids = [member.attachment_id for member in members]
    attached = deleted_attachments.list_attached(ids)
    rows = attachment_queries.list_by_ids(ids)
    for member in members:
        if member.attachment_id in attached - rows.keys():
            member.error = idempotency.KeyResourceGone(kind="attachment", id=member.attachment_id)
    return rows


def _attach_each(ctx: RequestContext, host: str, asked: Sequence[_Asked], earlier: Rows) -> None:
    """Attach volumes, each for itself.

    :param earlier: attachments that earlier runs of the request have made: they are continued
    :raises: as presence.connector(), if there are none
    """
    members = [item.member for item in asked]
    connector = _get_connector(host, members, earlier)
    for item in asked:
        if item.member.error is not None or item.member.attachment_id in earlier:
            continue
        with _noting_error(item.member):
            volume, reservation = _plan(ctx, item, connector)
            is_free = volume.status == "available" and not volume.multiattach
            attachment_sets.reserve_or_find(reservation, may_be_free=is_free)
    _request_connects(ctx, members, connector)
    set_progress.wait(members, set_progress.is_attached, lambda _failed: True)
    _remove_failed(ctx, members)


def _get_connector(host: str, members: Sequence[Member], earlier: Rows) -> Connector:
    """Return the connector of a host.

    If it has none now, and some volumes have attachments, that is the error of each of the others.
    """
    try:
        return presence.connector(host)
    except exception.AttachdError as error:
        if not earlier:
            raise
        for member in members:
            row = earlier.get(member.attachment_id)
            is_connected = row is not None and row["state"] in CONNECTOR_FIXED
            member.error = member.error or (None if is_connected else error)
        return {}


def _remove_failed(ctx: RequestContext, members: Sequence[Member]) -> None:
    """Remove what surely cannot be attached; that whose outcome is unknown goes on."""
    failed = [member for member in members if isinstance(member.error, _FAILURES)]
    rows = attachment_queries.list_by_ids([member.attachment_id for member in failed])
    for row in rows.values():
        detaches.begin(ctx, row)
    left = [dataclasses.replace(member, error=None) for member in failed]
    set_progress.wait(left, set_progress.is_removed, lambda _failed: True)
    for member, removed in zip(failed, left, strict=True):
        if removed.error is not None:
            member.error = exception.AttachFailed(
                volume_id=member.volume_id,
                cause=member.error,
                left=f"attachment {member.attachment_id} is still there: {removed.error}",
                finish=f"DELETE /attachments/{member.attachment_id}",
            )


# ---- As a whole or not at all ----


def _attach_all(
    ctx: RequestContext,
    set_id: str,
    asked: Sequence[_Asked],
    connector: Connector,
    claim: IdempotencyClaim | None,
) -> None:
    """Attach all volumes, or none.

    :raises: why one could not be attached
    """
    members = [item.member for item in asked]
    if not _is_continued(set_id, members, claim):
        reservations = [_plan(ctx, item, connector)[1] for item in asked]
        attachment_sets.reserve(set_id, reservations, None if claim is None else claim.note)
    if claim is not None:
        claim.held = True
    _request_connects(ctx, members, connector)
    set_progress.wait(members, set_progress.is_attached, _Renewal(set_id).go_on)
    failed = next((member for member in members if member.error is not None), None)
    if failed is None and _complete(set_id, members):
        return
    _undo(ctx, set_id, members, claim)
    raise _failure(set_id, failed)


def _is_continued(set_id: str, members: Sequence[Member], claim: IdempotencyClaim | None) -> bool:
    """Return whether an earlier run of the request has reserved the volumes.

    :raises Conflict: what it has reserved is being removed
    :raises KeyResourceGone: it was removed
    """
    if claim is None or not claim.made:
        return False
    known = attachment_sets.find(set_id)
    if known is not None:
        if not attachment_sets.renew(set_id):
            raise _failure(set_id, None)
    elif not _are_all_there(members):
        raise idempotency.KeyResourceGone(kind="attachment set", id=set_id)
    return True


def _are_all_there(members: Sequence[Member]) -> bool:
    ids = [member.attachment_id for member in members]
    return len(attachment_queries.list_by_ids(ids)) == len(ids)


class _Renewal:
    """Renews the row of a set while the request waits."""

    def __init__(self, set_id: str) -> None:
        self._set_id = set_id
        self._renewed_at = time.monotonic()

    def go_on(self, failed: bool) -> bool:  # noqa: FBT001  as set_progress.wait() calls it
        """Renew the row if it is time; return False: there is nothing to wait for any more."""
        if time.monotonic() - self._renewed_at > _RENEWAL:
            self._renewed_at = time.monotonic()
            return not failed and attachment_sets.renew(self._set_id)
        return not failed


def _complete(set_id: str, members: Sequence[Member]) -> bool:
    """Store that the attachments stay; False: they are being removed."""
    if attachment_sets.complete(set_id):
        return True
    # Another run of the same request may have completed it.
    return attachment_sets.find(set_id) is None and _are_all_there(members)


def _undo(
    ctx: RequestContext, set_id: str, members: Sequence[Member], claim: IdempotencyClaim | None
) -> None:
    """Remove all attachments of a set, as far as that is possible now; a manager goes on."""
    if not attachment_sets.begin_undo(set_id):
        return
    row = attachment_sets.find(set_id)
    if row is not None and not set_undo.advance(ctx, row):
        left = [dataclasses.replace(member, error=None) for member in members]
        set_progress.wait(left, set_progress.is_removed, lambda _failed: True)
        if not set_undo.advance(ctx, row):
            return
    lifecycle.release_claim(claim)


def _failure(set_id: str, failed: Member | None) -> exception.AttachdError:
    if failed is None or failed.error is None:
        return exception.Conflict(
            reason=f"The attachments of set {set_id} are being removed, because the process that "
            "attached them was interrupted. Repeat the request when the volumes are available."
        )
    error = failed.error
    message = f"{error} No volume of the set stays attached; this was volume {failed.volume_id}."
    return type(error)(message, **error.details)


# ---- Both ----


def _plan(ctx: RequestContext, asked: _Asked, connector: Connector) -> tuple[Volume, Reservation]:
    """Check a volume that is to be attached; return it, and what is to be reserved.

    :raises Forbidden: policy
    :raises InvalidVolumeAttachMode: it may only be read
    :raises Conflict: another host has an orphan device of it
    """
    member = asked.member
    volume = Volume.get(ctx, f"{member.volume_id}")
    for rule in (policy.CREATE, policy.CREATE_ON_HOST):
        ctx.authorize(rule, volume)
    lifecycle.check_requested_mode(volume, asked.mode)
    if not volume.multiattach:
        orphan_devices.check_nowhere_else(volume.id, f"{member.host}")
    requested = {"host": member.host, "mode": asked.mode, "connector": connector}
    new = lifecycle.new_attachment(ctx, volume, requested)
    values = {
        **new.columns(ctx, volume),
        "id": member.attachment_id,
        "expires_at": lifecycle.expiry_time(ctx, {"host": member.host}),
    }
    return volume, Reservation(volume.id, values, new.denied_rule)


def _request_connects(
    ctx: RequestContext, members: Sequence[Member], connector: Connector
) -> None:
    """Record that the volumes are to be connected, and notify their managers or the agent."""
    ids = [member.attachment_id for member in members if member.error is None]
    rows = attachment_queries.list_by_ids(ids)
    for member in members:
        row = rows.get(member.attachment_id)
        if row is not None and member.error is None:
            with _noting_error(member):
                _request_connect(ctx, Attachment.from_row(ctx, row), connector)


def _request_connect(ctx: RequestContext, attachment: Attachment, connector: Connector) -> None:
    state = AttachmentState(attachment.state)
    if state in ESTABLISHED:
        lifecycle.notify(ctx, attachment, lifecycle.notify_agent)
        return
    if state in CONNECTOR_FIXED:
        connector = attachment.connector or connector
    denied_rule = lifecycle.reconnect_denied_rule(ctx, attachment)
    with contextlib.suppress(duplicates.AlreadyConnected):
        async_requests.connect_shared(attachment.id, attachment.volume_id, connector, denied_rule)
    lifecycle.notify(ctx, attachment)

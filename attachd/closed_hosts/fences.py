# SPDX-License-Identifier: Apache-2.0
"""Fences of attachments: begin them, and return how far they are.

What is to be fenced is stored, and then its manager is asked.  What is stored is done in any case:
recovery goes on where a manager, an API process or a message is lost.
"""

from collections.abc import Callable, Mapping, Sequence
import datetime
from typing import Any, Final, Literal, TypedDict

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import messages
from attachd.db.agents import agent_transitions
from attachd.db.attachments import async_requests, attachment_queries, events
from attachd.db.cluster import services
from attachd.db.row_types import AttachmentWithVolumeRow
from attachd.objects import Attachment, backend_of
from attachd.rpc import manager_api
from attachd.rpc.manager_api import Fencing
from attachd.states import AttachmentState

LOG = log.getLogger(__name__)

Result = Literal["proved", "asserted", "pending", "failed"]

_DETACHED: Final = "It was detached meanwhile, in the usual way."


class Proof(TypedDict):
    """What is known of the access of a fenced host.

    :ivar result: "proved": the backend lists neither a holder nor a session of it; "asserted": the
        backend says that it has ended the access, and cannot list it
    :ivar observed_at: times at which the backend was asked; the access had ended before the first
    :ivar observed: what was seen, in sentences
    """

    result: str
    observed_at: list[str]
    observed: list[str]


class Subject(TypedDict):
    """An attachment that is fenced, as far as its result names it."""

    id: str
    parent_id: str | None
    volume_id: str
    instance_uuid: str | None


class FencedAttachment(TypedDict):
    """An attachment, and the result of fencing it.

    :ivar attachment_id: of a connection of os-initialize_connection, that of the attachment of
        os-attach that it serves, if there is one
    :ivar result: "proved": the backend lists neither its host nor a session of it; "asserted": the
        backend says that its access has ended, and cannot list it; "pending": not done yet, it
        continues; "failed": its host may still have access
    :ivar reason: why it is pending or has failed; null
    :ivar proof: what the backend has shown; null: nothing
    """

    attachment_id: str
    volume_id: str
    instance_uuid: str | None
    result: Result
    reason: str | None
    proof: Proof | None


def get_fencing() -> dict[str, str]:
    """Return how sure each backend's fencing is, a Fencing, by ``host@backend``.

    Those that have not reported it are left out.
    """
    return services.list_capability(manager_api.FENCING)


def begin(
    ctx: RequestContext,
    rows: Sequence[AttachmentWithVolumeRow],
    request: Callable[[str, str], bool] = async_requests.fence,
) -> dict[str, FencedAttachment]:
    """Store that attachments are to be fenced, and have their managers do it.

    Those of backends that cannot end the access of a host stay as they are.

    :param rows: as of host_fences.list_to_fence()
    :param request: async_requests.fence, or fence_on_host
    :returns: the results of those that are refused, by the ids of the rows
    """
    fencing, refused = get_fencing() if rows else {}, dict[str, FencedAttachment]()
    for row in rows:
        if (reason := _no_fencing(row, fencing)) is not None:
            refused[row["id"]] = _result(row, "failed", reason)
            continue
        try:
            is_new = request(row["id"], row["volume_id"])
        except exception.NotFound:
            continue
        except exception.Conflict as error:
            LOG.info("Attachment %s: not fenced: %s", row["id"], error)
            refused[row["id"]] = _result(row, "failed", f"{error}")
            continue
        if is_new and ctx.user_id is not None:
            news = messages.forced(row, ctx.user_id, ctx.request_id)
            messages.try_create(news, CONF.manager.message_ttl)
        _have_processed(ctx, row)
    return refused


def _have_processed(ctx: RequestContext, row: AttachmentWithVolumeRow) -> None:
    if row["error"]:
        agent_transitions.clear_error(row["id"])  # A later one is of this request.
    try:
        manager_api.process_pending(ctx, Attachment.from_row(ctx, row))
    except exception.AttachdError as error:
        LOG.warning("Attachment %s: fencing is left to recovery: %s", row["id"], error)


def list_results(rows: Sequence[Subject]) -> list[FencedAttachment]:
    """Return how far the fences of attachments are, in the order of the rows.

    :param rows: as they were when their fences began; they may be gone
    """
    current = attachment_queries.list_by_ids([row["id"] for row in rows])
    gone = [_known_as(row) for row in rows if row["id"] not in current]
    proofs = events.list_proofs(gone) if gone else {}
    left = {result["attachment_id"]: result for result in list_left([*current.values()])}
    return [
        left[_known_as(row)] if row["id"] in current else _ended(row, proofs.get(_known_as(row)))
        for row in rows
    ]


def list_left(rows: Sequence[AttachmentWithVolumeRow]) -> list[FencedAttachment]:
    """Return how far the fences of attachments are that exist now, in the order of the rows.

    :param rows: as they are now
    """
    fencing = get_fencing() if rows else {}
    return [_left(row, fencing) for row in rows]


def list_ended(host: str, since: datetime.datetime) -> list[FencedAttachment]:
    """Return the results of what a host had when it was fenced, and what has ended since.

    :param since: when it was fenced
    """
    return [
        FencedAttachment(
            attachment_id=item["attachment_id"],
            volume_id=item["volume_id"],
            instance_uuid=item["instance_uuid"],
            result=_result_of(item["proof"]),
            reason=None,
            proof=_proof(item["proof"]),
        )
        for item in events.list_fenced(host, since)
    ]


def _left(row: AttachmentWithVolumeRow, fencing: Mapping[str, str]) -> FencedAttachment:
    if row["state"] == AttachmentState.DISCONNECT_FAILED:
        return _result(row, "failed", row["error"])
    if not row["fenced"] and (reason := _no_fencing(row, fencing)) is not None:
        return _result(row, "failed", reason)
    return _result(row, "pending", row["error"])


def _ended(row: Subject, proof: Mapping[str, Any] | None) -> FencedAttachment:
    if proof is None:
        return _result(row, "asserted", _DETACHED)
    return {**_result(row, _result_of(proof)), "proof": _proof(proof)}


def _no_fencing(row: AttachmentWithVolumeRow, fencing: Mapping[str, str]) -> str | None:
    """Return why the backend of an attachment fences none; None: it does."""
    backend = backend_of(row["volume_host"])
    if fencing.get(backend) != Fencing.NONE:
        return None
    return manager_api.NO_FENCING.format(attachment_id=row["id"], backend=backend)


def _known_as(row: Subject) -> str:
    """Return the id by which clients know an attachment."""
    return row["parent_id"] or row["id"]


def _result_of(proof: Mapping[str, Any]) -> Result:
    return "proved" if proof["result"] == Fencing.PROVED else "asserted"


def _proof(proof: Mapping[str, Any]) -> Proof:
    return Proof(
        result=proof["result"], observed_at=proof["observed_at"], observed=proof["observed"]
    )


def _result(row: Subject, result: Result, reason: str | None = None) -> FencedAttachment:
    return {
        "attachment_id": _known_as(row),
        "volume_id": row["volume_id"],
        "instance_uuid": row["instance_uuid"],
        "result": result,
        "reason": reason,
        "proof": None,
    }

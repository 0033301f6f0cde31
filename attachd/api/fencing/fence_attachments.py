# SPDX-License-Identifier: Apache-2.0
"""Fence attachments: store that they are to go, and have the managers end and prove it.

What is stored is done in any case: recovery continues where a manager, this process or the request
ends.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import time
from typing import Any, Final, Literal, TypedDict

from oslo_log import log
import tenacity

from attachd import exception
from attachd.api.events.view import Proof
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.attachments import async_requests, events
from attachd.db.attachments import store as attachments_db
from attachd.db.cluster import services
from attachd.objects import Attachment
from attachd.rpc import manager_api
from attachd.rpc.manager_api import Fencing

LOG = log.getLogger(__name__)

_POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at what other managers have done."""
_PAUSE: Final = 0.02
"""Seconds until a call is tried again that was one too many at the same time."""
_THREADS: Final = 8
"""How many attachments of one request are fenced at the same time."""


class FencedAttachment(TypedDict):
    """An attachment, and the result of fencing it.

    :ivar result: "proved": the backend lists neither its host nor a session of it; "asserted": the
        backend says that its access has ended, and cannot list it; "pending": not done yet, it
        continues; "failed": its host may still have access
    :ivar reason: why it is pending or has failed; null
    :ivar proof: what the backend has shown; null: nothing
    """

    attachment_id: str
    volume_id: str
    instance_uuid: str | None
    result: Literal["proved", "asserted", "pending", "failed"]
    reason: str | None
    proof: Proof | None


def fence(ctx: RequestContext, attachments: Sequence[Attachment]) -> list[FencedAttachment]:
    """Fence attachments; return the result of each within [rpc]attach_timeout."""
    fencing = get_fencing()
    results: dict[str, FencedAttachment] = {}
    started = []
    for attachment in attachments:
        if fencing.get(attachment.backend) == Fencing.NONE:
            results[attachment.id] = _result(attachment, "failed", _cannot(attachment))
        elif _start(attachment):
            started.append(attachment)
        else:
            results[attachment.id] = _gone(attachment)
    results |= _fence_all(ctx, started)
    return [results[attachment.id] for attachment in attachments]


def get_fencing() -> dict[str, str]:
    """Return how sure each backend's fencing is, a Fencing, by ``host@backend``.

    Those that have not reported it are left out.
    """
    return services.list_capability(manager_api.FENCING)


def _start(attachment: Attachment) -> bool:
    """Store that an attachment is fenced; return False if it is deleted."""
    try:
        async_requests.fence(attachment.id, attachment.volume_id)
    except exception.NotFound:
        return False
    return True


def _fence_all(
    ctx: RequestContext, attachments: Sequence[Attachment]
) -> dict[str, FencedAttachment]:
    if not attachments:
        return {}
    executor = futures.ThreadPoolExecutor(min(_THREADS, len(attachments)), "fence")
    try:
        calls = {item.id: executor.submit(_fence, ctx, item) for item in attachments}
        results = _wait(calls, attachments)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    pending = "There was no answer in time."
    return {
        item.id: results.get(item.id) or _result(item, "pending", pending) for item in attachments
    }


def _wait(
    calls: Mapping[str, "futures.Future[FencedAttachment]"], attachments: Sequence[Attachment]
) -> dict[str, FencedAttachment]:
    """Return the results that are there in time.

    A manager that dies never answers; another one goes on, and its proof is an event.
    """
    results: dict[str, FencedAttachment] = {}
    deadline = time.monotonic() + CONF.rpc.attach_timeout
    while remaining := [item for item in attachments if item.id not in results]:
        timeout = min(_POLL_INTERVAL, deadline - time.monotonic())
        if timeout <= 0:
            break
        futures.wait([calls[item.id] for item in remaining], timeout)
        results |= {
            item.id: calls[item.id].result() for item in remaining if calls[item.id].done()
        }
        waiting = [item for item in remaining if item.id not in results]
        proofs = events.list_proofs([item.id for item in waiting]) if waiting else {}
        results |= {
            item.id: _proved(item, proofs[item.id])
            for item in waiting
            if item.id in proofs and _is_gone(item)
        }
    return results


def _is_gone(attachment: Attachment) -> bool:
    try:
        attachments_db.get(attachment.id, None)
    except exception.NotFound:
        return True
    return False


def _fence(ctx: RequestContext, attachment: Attachment) -> FencedAttachment:
    patiently = tenacity.retry(
        # The limit of calls that wait at the same time counts these as well.
        retry=tenacity.retry_if_exception_type(exception.TooManyCalls),
        stop=tenacity.stop_after_delay(CONF.rpc.attach_timeout),
        wait=tenacity.wait_fixed(_PAUSE),
        reraise=True,
    )
    try:
        proof = patiently(manager_api.fence)(ctx, attachment)
    except exception.AttachmentNotFound:
        return _gone(attachment)
    except (exception.Unavailable, exception.TooManyCalls, exception.ManagerTimeout) as error:
        return _result(attachment, "pending", f"{error}")
    except exception.AttachdError as error:
        return _result(attachment, "failed", f"{error}")
    except Exception:
        LOG.exception("Attachment %s: fencing failed", attachment.id)
        return _result(attachment, "pending", "An unforeseen error; the log of the API has more.")
    return _proved(attachment, proof)


def _gone(attachment: Attachment) -> FencedAttachment:
    """Return the result for an attachment that another process has removed."""
    proof = events.list_proofs([attachment.id]).get(attachment.id)
    if proof is not None:
        return _proved(attachment, proof)
    return _result(attachment, "asserted", "It was detached meanwhile, in the usual way.")


def _proved(attachment: Attachment, proof: Mapping[str, Any]) -> FencedAttachment:
    """Return the result of an attachment whose proof a manager has returned or stored."""
    is_proved = proof["result"] == Fencing.PROVED
    result = _result(attachment, "proved" if is_proved else "asserted")
    return {**result, "proof": Proof(**proof)}  # type: ignore[typeddict-item]


def _result(
    attachment: Attachment,
    result: Literal["proved", "asserted", "pending", "failed"],
    reason: str | None = None,
) -> FencedAttachment:
    return {
        "attachment_id": attachment.id,
        "volume_id": attachment.volume_id,
        "instance_uuid": attachment.instance_uuid,
        "result": result,
        "reason": reason,
        "proof": None,
    }


def _cannot(attachment: Attachment) -> str:
    return (
        f"Backend {attachment.backend} cannot end the access of a host (fencing: none). Turn the "
        f"host off, and then delete attachment {attachment.id} by force."
    )

# SPDX-License-Identifier: Apache-2.0
"""Fence attachments: store that they are to go, and have the managers end and prove it.

What is stored is done in any case: recovery continues where a manager, this process or the request
ends.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import time
from typing import Any, Final, Literal, NamedTuple, TypedDict

from oslo_log import log
import tenacity

from attachd import exception
from attachd.api.events.view import Proof
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import host_fences
from attachd.db.attachments import async_requests, attachment_store, events
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
    result: Literal["proved", "asserted", "pending", "failed"]
    reason: str | None
    proof: Proof | None


class _Target(NamedTuple):
    """An attachment that is to be fenced.

    :ivar known_as: the id by which clients know it
    """

    attachment: Attachment
    known_as: str

    @property
    def id(self) -> str:
        """The id of its row."""
        return str(self.attachment.id)


def fence_host(ctx: RequestContext, host: str) -> list[FencedAttachment]:
    """Fence all attachments of a fenced host; returns as :func:`fence`."""
    return _fence_targets(
        ctx,
        [
            _Target(Attachment.from_row(ctx, row), row["parent_id"] or row["id"])
            for row in host_fences.list_to_fence([host])
        ],
    )


def fence(ctx: RequestContext, attachment: Attachment) -> FencedAttachment:
    """Fence an attachment; return the result within [rpc]attach_timeout."""
    (result,) = _fence_targets(ctx, [_Target(attachment, attachment.id)])
    return result


def get_fencing() -> dict[str, str]:
    """Return how sure each backend's fencing is, a Fencing, by ``host@backend``.

    Those that have not reported it are left out.
    """
    return services.list_capability(manager_api.FENCING)


def _fence_targets(ctx: RequestContext, targets: Sequence[_Target]) -> list[FencedAttachment]:
    fencing = get_fencing()
    results: dict[str, FencedAttachment] = {}
    started = []
    for target in targets:
        backend = target.attachment.backend
        if fencing.get(backend) == Fencing.NONE:
            reason = manager_api.NO_FENCING.format(attachment_id=target.id, backend=backend)
            results[target.id] = _result(target, "failed", reason)
            continue
        try:
            async_requests.fence(target.id, target.attachment.volume_id)
            started.append(target)
        except exception.NotFound:
            results[target.id] = _gone(target)
        except exception.Conflict as error:
            results[target.id] = _result(target, "failed", f"{error}")
    results |= _fence_all(ctx, started)
    return [results[target.id] for target in targets]


def _fence_all(ctx: RequestContext, targets: Sequence[_Target]) -> dict[str, FencedAttachment]:
    if not targets:
        return {}
    executor = futures.ThreadPoolExecutor(min(_THREADS, len(targets)), "fence")
    try:
        calls = {item.id: executor.submit(_fence, ctx, item) for item in targets}
        results = _wait(calls, targets)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    pending = "There was no answer in time."
    return {item.id: results.get(item.id) or _result(item, "pending", pending) for item in targets}


def _wait(
    calls: Mapping[str, "futures.Future[FencedAttachment]"], targets: Sequence[_Target]
) -> dict[str, FencedAttachment]:
    """Return the results that are there in time.

    A manager that dies never answers; another one goes on, and its proof is an event.
    """
    results: dict[str, FencedAttachment] = {}
    deadline = time.monotonic() + CONF.rpc.attach_timeout
    while remaining := [item for item in targets if item.id not in results]:
        timeout = min(_POLL_INTERVAL, deadline - time.monotonic())
        if timeout <= 0:
            break
        futures.wait([calls[item.id] for item in remaining], timeout)
        results |= {
            item.id: calls[item.id].result() for item in remaining if calls[item.id].done()
        }
        waiting = [item for item in remaining if item.id not in results]
        proofs = events.list_proofs([item.known_as for item in waiting]) if waiting else {}
        results |= {
            item.id: _proved(item, proofs[item.known_as])
            for item in waiting
            if item.known_as in proofs and _is_gone(item)
        }
    return results


def _is_gone(target: _Target) -> bool:
    try:
        attachment_store.get(target.id, None)
    except exception.NotFound:
        return True
    return False


def _fence(ctx: RequestContext, target: _Target) -> FencedAttachment:
    patiently = tenacity.retry(
        # The limit of calls that wait at the same time counts these as well.
        retry=tenacity.retry_if_exception_type(exception.TooManyCalls),
        stop=tenacity.stop_after_delay(CONF.rpc.attach_timeout),
        wait=tenacity.wait_fixed(_PAUSE),
        reraise=True,
    )
    try:
        proof = patiently(manager_api.fence)(ctx, target.attachment)
    except exception.AttachmentNotFound:
        return _gone(target)
    except (exception.Unavailable, exception.TooManyCalls, exception.ManagerTimeout) as error:
        return _result(target, "pending", f"{error}")
    except exception.AttachdError as error:
        return _result(target, "failed", f"{error}")
    except Exception:
        LOG.exception("Attachment %s: fencing failed", target.id)
        return _result(target, "pending", "An unforeseen error; the log of the API has more.")
    return _proved(target, proof)


def _gone(target: _Target) -> FencedAttachment:
    """Return the result for an attachment that another process has removed."""
    proof = events.list_proofs([target.known_as]).get(target.known_as)
    if proof is not None:
        return _proved(target, proof)
    return _result(target, "asserted", "It was detached meanwhile, in the usual way.")


def _proved(target: _Target, proof: Mapping[str, Any]) -> FencedAttachment:
    """Return the result of an attachment whose proof a manager has returned or stored."""
    is_proved = proof["result"] == Fencing.PROVED
    result = _result(target, "proved" if is_proved else "asserted")
    return {**result, "proof": Proof(**proof)}  # type: ignore[typeddict-item]


def _result(
    target: _Target,
    result: Literal["proved", "asserted", "pending", "failed"],
    reason: str | None = None,
) -> FencedAttachment:
    return {
        "attachment_id": target.known_as,
        "volume_id": target.attachment.volume_id,
        "instance_uuid": target.attachment.instance_uuid,
        "result": result,
        "reason": reason,
        "proof": None,
    }

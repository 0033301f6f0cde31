# SPDX-License-Identifier: Apache-2.0
"""Requests that are done once however often they are sent: Idempotency-Key; asked by endpoint.

Source: draft-ietf-httpapi-idempotency-key-header.  What an endpoint answered finally is answered
again: success, and refusals too, as the draft and services such as Stripe have it, since a copy
of a request that was under way for long must not do what its sender believes to be refused.
Failures of the service, 5xx, are no answer: the next run goes on where the last one ended.

Runs at the same time do not wait for each other here.  Each goes on with the one resource of its
key, and where that is being connected the manager keeps them in turn.
"""

from collections.abc import Callable
import hashlib
import json
import re
from typing import Any, Final, NamedTuple, TypeVar

from oslo_log import log
import webob

from attachd import exception
from attachd.api import serialization, validation
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import idempotency_keys as db
from attachd.db.idempotency_keys import AlreadyMade, IdempotencyClaim

__all__ = [
    "HEADER",
    "REPLAYED",
    "AlreadyMade",
    "IdempotencyClaim",
    "IdempotencySpec",
    "KeyUse",
    "find_created",
    "load_created",
    "read_key",
    "run_once",
]

LOG = log.getLogger(__name__)
T = TypeVar("T")

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
"""Says in an answer that it is an earlier one; the draft has no name for it, Stripe has this."""

_MAX_KEY_LENGTH: Final = 255
_MAX_RUNS: Final = 3
_REFUSED: Final = 400
_SERVERS_FAULT: Final = 500
# RFC 8941, 3.3.3: a string
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
# As most clients send it.  A comma stands between the values of two headers.
_BARE: Final = re.compile(r"[!#-+\--\[\]-~](?:[ !#-+\--\[\]-~]*[!#-+\--\[\]-~])?")


class KeyInUse(exception.Conflict):
    """Another request with this key is running: repeat it a little later."""

    msg_fmt = (
        "A request with this Idempotency-Key is still being worked on. Repeat it in a few seconds "
        "to get its answer."
    )


class KeyReused(exception.AttachdError):
    """The key belongs to another request: draw a new one for each."""

    code = 422
    msg_fmt = (
        "This Idempotency-Key was used for another request. Repeat a request as it was, or use a "
        "new key."
    )


class KeyResourceGone(exception.NotFound):
    """What the first request with this key made is there no longer."""

    msg_fmt = (
        "What was made for this Idempotency-Key, %(kind)s %(id)s, has been deleted since. Use a "
        "new key to make another one."
    )


class IdempotencySpec(NamedTuple):
    """How an endpoint's answer is kept, and made again.

    :ivar keep: of the answer what is no secret
    :ivar remake: (ctx, id of the resource, what was kept) -> the answer; raises NotFound
    """

    keep: Callable[[Any], Any]
    remake: Callable[[RequestContext, str, Any], Any]


class KeyUse(NamedTuple):
    """One use of a key.

    :ivar digest: of the key and whose it is: keys of others are other keys
    :ivar fingerprint: of the request
    """

    digest: str
    fingerprint: str

    @classmethod
    def of(cls, ctx: RequestContext, key: str, *request: Any) -> "KeyUse":
        """Return what is stored of a key and of all that makes its request another one."""
        return cls(_hashed(ctx.project_id, ctx.user_id, key), _hashed(*request))


def _hashed(*values: Any) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_key(request: webob.Request) -> str | None:
    """Return the key of a request; None: it has none.

    :raises BadRequest: it has something else
    """
    sent: str | None = request.headers.get(HEADER)
    if sent is None:
        return None
    sent = sent.strip(" \t")
    quoted = _QUOTED.fullmatch(sent)
    bare = _BARE.fullmatch(sent)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else bare[0] if bare else ""
    if not 0 < len(key) <= _MAX_KEY_LENGTH:
        raise exception.BadRequest(
            reason=f"The header {HEADER} must be one string of 1 to {_MAX_KEY_LENGTH} printable "
            f"ASCII characters, such as a UUID: {validation.abbreviate(sent)}"
        )
    return key


def run_once(
    ctx: RequestContext,
    response: webob.Response,
    use: KeyUse,
    spec: IdempotencySpec,
    run: Callable[[IdempotencyClaim], Any],
) -> Any:
    """Have a request done, or answer what was answered before.

    :param response: has the status that a run ends with, and gets that of the answer
    :param run: does it
    :raises KeyReused: the key is one of another request
    :raises KeyInUse: another run is faster than this one, again and again
    """
    for _ in range(_MAX_RUNS):
        known = db.claim(use.digest, use.fingerprint, CONF.api.idempotency_key_ttl)
        if known.fingerprint != use.fingerprint:
            raise KeyReused
        if known.status is not None:
            response.headers[REPLAYED] = "true"
            return _answered(ctx, response, spec, known)
        idempotency_claim = IdempotencyClaim(
            use.digest, known.resource_id, known.repeated, known.made
        )
        try:
            return _run(response, spec, run, idempotency_claim)
        except AlreadyMade:
            LOG.info(
                "A request for %s is done by two at the same time", idempotency_claim.resource_id
            )
    raise KeyInUse


def _run(
    response: webob.Response,
    spec: IdempotencySpec,
    run: Callable[[IdempotencyClaim], Any],
    idempotency_claim: IdempotencyClaim,
) -> Any:
    try:
        result = run(idempotency_claim)
    except KeyResourceGone:
        raise
    except exception.AttachdError as error:
        if idempotency_claim.held and isinstance(error, exception.NotFound):
            # Another run had made it, and gave it up while this one went on with it.
            raise AlreadyMade from error
        if error.code < _SERVERS_FAULT:
            refusal = {"error": type(error).__name__, "message": str(error)}
            if not (
                _keep(db.refuse, idempotency_claim, error.code, refusal) or idempotency_claim.held
            ):
                # What this one was refused another one got meanwhile.
                raise AlreadyMade from error
        raise
    _keep(
        db.finish,
        idempotency_claim,
        response.status_int,
        spec.keep(json.loads(serialization.encode(result))),
    )
    return result


def _keep(
    how: Callable[[str, int, Any], bool],
    idempotency_claim: IdempotencyClaim,
    status: int,
    answer: Any,
) -> bool:
    """Keep an answer, or let the next run find out: what was done is tied to the key anyway.

    :returns: False if there is another answer, or the resource was made
    """
    try:
        return how(idempotency_claim.digest, status, answer)
    except exception.AttachdError as error:
        LOG.warning(
            "The answer about %s could not be kept: %s", idempotency_claim.resource_id, error
        )
        return True


def _answered(
    ctx: RequestContext, response: webob.Response, spec: IdempotencySpec, known: db.KeyRecord
) -> Any:
    if known.status is None or known.status >= _REFUSED:
        kind = getattr(exception, known.answer["error"], exception.Conflict)
        raise kind(known.answer["message"])
    response.status_int = known.status
    return spec.remake(ctx, known.resource_id, known.answer)


def find_created(
    idempotency_claim: IdempotencyClaim | None, kind: str, load: Callable[[], T]
) -> T | None:
    """Return what an earlier run of a request has made; None: nothing.

    :param kind: of resource, for people
    :param load: loads it; raises NotFound
    :raises KeyOutlived: it is gone
    """
    if idempotency_claim is None or not idempotency_claim.repeated:
        return None
    try:
        found = load()
    except exception.NotFound as error:
        if idempotency_claim.made:
            raise KeyResourceGone(kind=kind, id=idempotency_claim.resource_id) from error
        return None
    idempotency_claim.held = True
    return found


def load_created(resource_id: str, kind: str, load: Callable[[], T]) -> T:
    """Return what was made for a key, for its answer to be made again.

    :raises KeyOutlived: it is gone
    """
    try:
        return load()
    except exception.NotFound as error:
        raise KeyResourceGone(kind=kind, id=resource_id) from error

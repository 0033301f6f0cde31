# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys: a request that is sent several times is executed once; used by endpoint.

Source: draft-ietf-httpapi-idempotency-key-header.  The final response of an endpoint is stored and
repeated: success, and refusals, too, as the draft and Stripe's API do, since a delayed duplicate
must not succeed after its sender got a failure.  Failures of the service, 5xx, and refusals that
ask to repeat the request later, 429, are not final: the next run continues where the last one
ended.  The same holds for the response of a set that has such an error for one of its members.

Concurrent runs do not wait for each other here.  Each continues with the one resource of its key,
and the manager's volume lock orders them while that is connected.
"""

from collections.abc import Callable
import hashlib
import json
import re
from typing import Any, Final, NamedTuple, TypeVar

from oslo_log import log
import webob

from attachd import exception
from attachd.api import errors, serialization, validation
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import idempotency_keys
from attachd.db.idempotency_keys import AlreadyMade, IdempotencyClaim

__all__ = [
    "HEADER",
    "REPLAYED",
    "AlreadyMade",
    "IdempotencyClaim",
    "IdempotencySpec",
    "KeyUse",
    "find_created",
    "is_final",
    "load_created",
    "read_key",
    "run_once",
]

LOG = log.getLogger(__name__)
T = TypeVar("T")

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
"""The header of a repeated response; the draft has no name for it, this one is Stripe's."""

_MAX_KEY_LENGTH: Final = 255
_MAX_RUNS: Final = 3
_REFUSED: Final = 400
_SERVERS_FAULT: Final = 500
# RFC 8941, 3.3.3: a quoted string
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
# A string without quotes, which most clients send.  A comma would separate two headers.
_BARE: Final = re.compile(r"[!#-+\--\[\]-~](?:[ !#-+\--\[\]-~]*[!#-+\--\[\]-~])?")


class KeyInUse(exception.Conflict):
    """Another request with this key is running."""

    msg_fmt = (
        "A request with this Idempotency-Key is still being worked on. Repeat it in a few seconds "
        "to get its answer."
    )


class KeyReused(exception.AttachdError):
    """The key was used for another request."""

    code = 422
    msg_fmt = (
        "This Idempotency-Key was used for another request. Repeat a request as it was, or use a "
        "new key."
    )


class KeyResourceGone(exception.NotFound):
    """The resource of this key was deleted."""

    msg_fmt = (
        "What was made for this Idempotency-Key, %(kind)s %(id)s, has been deleted since. Use a "
        "new key to make another one."
    )


class IdempotencySpec(NamedTuple):
    """How the response of an endpoint is stored and repeated.

    :ivar keep: (response) -> the part of it that is stored, without secrets; None: it is not
        final, and the next run continues
    :ivar remake: (ctx, id of the resource, stored part) -> the response; raises NotFound
    """

    keep: Callable[[Any], Any]
    remake: Callable[[RequestContext, str, Any], Any]


class KeyUse(NamedTuple):
    """One use of a key.

    :ivar digest: of the key and its owner, so that equal keys of two users differ
    :ivar fingerprint: of the request
    """

    digest: str
    fingerprint: str

    @classmethod
    def from_request(cls, ctx: RequestContext, key: str, *request: Any) -> "KeyUse":
        """Hash a key, and everything that distinguishes its request from others."""
        return cls(_hash(ctx.project_id, ctx.user_id, key), _hash(*request))


def _hash(*values: Any) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_final(code: int) -> bool:
    """Return whether an error is repeated as it is, by its status."""
    return code < _SERVERS_FAULT and code not in errors.RETRYABLE


def read_key(request: webob.Request) -> str | None:
    """Return the key of a request, or None.

    :raises BadRequest: the header is malformed
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
    """Execute a request, or repeat the stored response of its key.

    :param response: its status is that of a run, or becomes that of the stored response
    :param run: executes the request
    :raises KeyReused: the key was used for another request
    :raises KeyInUse: concurrent runs were faster, several times
    """
    for _ in range(_MAX_RUNS):
        known = idempotency_keys.claim(use.digest, use.fingerprint, CONF.api.idempotency_key_ttl)
        if known.fingerprint != use.fingerprint:
            raise KeyReused
        if known.status is not None:
            response.headers[REPLAYED] = "true"
            return _repeat(ctx, response, spec, known)
        idempotency_claim = IdempotencyClaim(
            use.digest, known.resource_id, known.repeated, known.made
        )
        try:
            return _run(response, spec, run, idempotency_claim)
        except AlreadyMade:
            LOG.info(
                "Duplicate requests for %s run at the same time", idempotency_claim.resource_id
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
            # Another run had created it, and gave it up while this run continued with it.
            raise AlreadyMade from error
        if is_final(error.code):
            refusal = {"error": type(error).__name__, "message": str(error)}
            if not (
                _store(idempotency_keys.refuse, idempotency_claim, error.code, refusal)
                or idempotency_claim.held
            ):
                # Another run has succeeded in the meantime.
                raise AlreadyMade from error
        raise
    kept = spec.keep(json.loads(serialization.encode(result)))
    if kept is not None:
        _store(idempotency_keys.finish, idempotency_claim, response.status_int, kept)
    return result


def _store(
    store: Callable[[str, int, Any], bool],
    idempotency_claim: IdempotencyClaim,
    status: int,
    answer: Any,
) -> bool:
    """Store a response.  A failure is only logged: the next run finds the resource of the key.

    :returns: False if another response is stored, or the resource was created
    """
    try:
        return store(idempotency_claim.digest, status, answer)
    except exception.AttachdError as error:
        LOG.warning(
            "Response about %s could not be stored: %s", idempotency_claim.resource_id, error
        )
        return True


def _repeat(
    ctx: RequestContext,
    response: webob.Response,
    spec: IdempotencySpec,
    known: idempotency_keys.KeyRecord,
) -> Any:
    if known.status is None or known.status >= _REFUSED:
        kind = getattr(exception, known.answer["error"], exception.Conflict)
        raise kind(known.answer["message"])
    response.status_int = known.status
    return spec.remake(ctx, known.resource_id, known.answer)


def find_created(
    idempotency_claim: IdempotencyClaim | None, kind: str, load: Callable[[], T]
) -> T | None:
    """Return the resource that an earlier run of a request has created, or None.

    :param kind: of resource, for messages
    :param load: loads it; raises NotFound
    :raises KeyResourceGone: it was deleted
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
    """Return the resource of a key, to repeat a response.

    :raises KeyResourceGone: it was deleted
    """
    try:
        return load()
    except exception.NotFound as error:
        raise KeyResourceGone(kind=kind, id=resource_id) from error

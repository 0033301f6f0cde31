# SPDX-License-Identifier: Apache-2.0
"""Conversion of exceptions into fault bodies; used by root and app.

``{"badRequest": {"code": 400, "message": "..."}}``: clients read the only value and
ignore its key.
"""

import json
import math
from types import MappingProxyType
from typing import Any, NamedTuple

from oslo_log import log

from attachd import exception
from attachd.conf import CONF

LOG = log.getLogger(__name__)

FAULT_NAMES = MappingProxyType(
    {
        400: "badRequest",
        401: "unauthorized",
        403: "forbidden",
        404: "itemNotFound",
        405: "badMethod",
        409: "conflictingRequest",
        410: "gone",
        413: "overLimit",
        415: "badMediaType",
        429: "overLimit",
        501: "notImplemented",
        503: "serviceUnavailable",
    }
)
"""The names of faults in the Block Storage API, by status; other statuses are a computeFault."""

RETRYABLE = frozenset(
    {
        exception.TooManyCalls.code,
        exception.Unavailable.code,
        exception.ManagerTimeout.code,
    }
)
"""Statuses for a temporary failure: the same request may succeed after Retry-After."""

MAX_RETRY_AFTER = 3600
"""Upper limit of Retry-After, in seconds."""

NOT_UTF_8 = "The URL or the body holds bytes that are not UTF-8."
UNEXPECTED_ERROR = (
    "The server has either erred or is incapable of performing the requested operation. "
    "Its operator finds the reason under request id {request_id}."
)


class Fault(NamedTuple):
    """An error response."""

    status: int
    body: bytes
    headers: dict[str, str]


def fault(error: Exception, request_id: str) -> Fault:
    """Convert an exception into a response, and log it if it is the server's fault."""
    if isinstance(error, UnicodeDecodeError):
        return _fault(400, NOT_UTF_8)
    if not isinstance(error, exception.AttachdError):
        LOG.error("Unexpected error in request %s", request_id, exc_info=error)
        return _fault(500, UNEXPECTED_ERROR.format(request_id=request_id))
    message = str(error)
    if error.code >= 500:  # noqa: PLR2004  HTTP: the server's own fault
        LOG.warning("Request %s failed: %s", request_id, error)
        message = exception.hide_paths(message)
    return _fault(error.code, message, _retry_after(error))


def _retry_after(error: exception.AttachdError) -> int:
    """Return the value of Retry-After, in seconds."""
    retry_after: float = error.details.get("retry_after", CONF.api.retry_after)
    return min(max(1, math.ceil(retry_after)), MAX_RETRY_AFTER)


def _fault(code: int, message: str, seconds: int = 0) -> Fault:
    if code == 401:  # noqa: PLR2004  in the form of keystonemiddleware
        error = {"code": code, "title": "Unauthorized", "message": message}
        return Fault(code, _encode({"error": error}), {"WWW-Authenticate": "attachd"})
    content: dict[str, Any] = {"code": code, "message": message}
    headers = {}
    if code == 413:  # noqa: PLR2004
        content["retryAfter"] = headers["Retry-After"] = "0"
    if code in RETRYABLE:
        headers["Retry-After"] = str(seconds)
    return Fault(code, _encode({key(code): content}), headers)


def key(code: int) -> str:
    """Return the name of the fault of a status."""
    return FAULT_NAMES.get(code, "computeFault")


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()

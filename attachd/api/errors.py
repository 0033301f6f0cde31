# SPDX-License-Identifier: Apache-2.0
"""Conversion of exceptions into fault bodies; used by root and app.

``{"badRequest": {"code": 400, "message": "..."}}``: clients read the only value and
ignore its key.  Under attachd 1.0 the value also has ``reason_code``.
"""

import json
import math
from types import MappingProxyType
from typing import Any, Final, NamedTuple

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

_SERVERS_FAULT: Final = 500
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


def fault(error: Exception, request_id: str, attachd_version: Any = None) -> Fault:
    """Convert an exception into a response, and log it if it is the server's fault.

    :param attachd_version: of attachd's own API, as requested; None: the answer is that of the
        Block Storage API
    """
    if isinstance(error, UnicodeDecodeError):
        error = exception.BadRequest(reason=NOT_UTF_8)
    if not isinstance(error, exception.AttachdError):
        LOG.error("Unexpected error in request %s", request_id, exc_info=error)
        error = exception.AttachdError(UNEXPECTED_ERROR.format(request_id=request_id))
    elif error.code >= _SERVERS_FAULT:
        LOG.warning("Request %s failed: %s", request_id, error)
    content = {"code": error.code, "message": public_message(error)}
    if attachd_version is not None:
        content["reason_code"] = error.reason_code()
    return _fault(error.code, content, _retry_after(error))


def public_message(error: exception.AttachdError) -> str:
    """Return the message of an error for users."""
    return exception.hide_paths(str(error)) if error.code >= _SERVERS_FAULT else str(error)


def _retry_after(error: exception.AttachdError) -> int:
    """Return the value of Retry-After, in seconds."""
    retry_after: float = error.details.get("retry_after", CONF.api.retry_after)
    return min(max(1, math.ceil(retry_after)), MAX_RETRY_AFTER)


def _fault(code: int, content: dict[str, Any], seconds: int) -> Fault:
    if code == 401:  # noqa: PLR2004  in the form of keystonemiddleware
        error = {"code": code, "title": "Unauthorized", **content}
        return Fault(code, _encode({"error": error}), {"WWW-Authenticate": "attachd"})
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

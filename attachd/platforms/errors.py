# SPDX-License-Identifier: Apache-2.0
"""Codes for the errors of attachd's API.

Source: CSI 1.12, "Error Scheme" and the tables of errors of each call.
"""

from collections.abc import Mapping
import http
from typing import Final

from keystoneauth1 import exceptions as transport
from openstack import exceptions
import requests

from attachd.platforms.calls import CallError, ErrorCode

_BY_REASON: Final[Mapping[str, ErrorCode]] = {
    # The volume, or the node, cannot take one more.
    "attachment_limit_exceeded": ErrorCode.RESOURCE_EXHAUSTED,
    "host_limit_exceeded": ErrorCode.RESOURCE_EXHAUSTED,
    "quota_exceeded": ErrorCode.RESOURCE_EXHAUSTED,
    "no_valid_backend": ErrorCode.RESOURCE_EXHAUSTED,
    "capability_missing": ErrorCode.RESOURCE_EXHAUSTED,
    "volume_size_exceeded": ErrorCode.OUT_OF_RANGE,
    # Another node, or a client of attachd beside this driver, holds the volume.
    "volume_not_available": ErrorCode.FAILED_PRECONDITION,
    "not_multiattach": ErrorCode.FAILED_PRECONDITION,
    "invalid_volume_attach_mode": ErrorCode.FAILED_PRECONDITION,
    "attachment_in_use": ErrorCode.FAILED_PRECONDITION,
    "host_fenced": ErrorCode.FAILED_PRECONDITION,
    "host_drained": ErrorCode.FAILED_PRECONDITION,
    "invalid_volume": ErrorCode.FAILED_PRECONDITION,
    "invalid_snapshot": ErrorCode.FAILED_PRECONDITION,
    "backend_frozen": ErrorCode.UNAVAILABLE,
    # The same call succeeds as soon as the host works again.
    "agent_unavailable": ErrorCode.UNAVAILABLE,
    "agent_conflict": ErrorCode.UNAVAILABLE,
    "device_busy": ErrorCode.FAILED_PRECONDITION,
    "device_present": ErrorCode.FAILED_PRECONDITION,
}
"""By the reason code that attachd gives beside its message."""

_BY_STATUS: Final[Mapping[int, ErrorCode]] = {
    http.HTTPStatus.BAD_REQUEST: ErrorCode.INVALID_ARGUMENT,
    http.HTTPStatus.FORBIDDEN: ErrorCode.PERMISSION_DENIED,
    http.HTTPStatus.NOT_FOUND: ErrorCode.NOT_FOUND,
    # Another request works on the volume, or its state changes.
    http.HTTPStatus.CONFLICT: ErrorCode.ABORTED,
    http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ErrorCode.RESOURCE_EXHAUSTED,
    http.HTTPStatus.GATEWAY_TIMEOUT: ErrorCode.DEADLINE_EXCEEDED,
}
"""By the status of the response, if the reason has no entry.  Without one the call is UNAVAILABLE:
it may be repeated, and the work may go on."""

_PREFIX: Final = "attachd."


def reason_code(error: Exception) -> str:
    """Return the reason code of an error, without "attachd."; "" if the API gave none."""
    response = error.response if isinstance(error, exceptions.HttpException) else None
    try:
        (fault,) = response.json().values()  # type: ignore[union-attr]
        return str(fault["reason_code"]).removeprefix(_PREFIX)
    except (AttributeError, KeyError, TypeError, ValueError, requests.JSONDecodeError):
        return ""


def status_of(error: Exception) -> int:
    """Return the status of the response; 0 if there was none."""
    found = error.status_code if isinstance(error, exceptions.HttpException) else None
    return int(found or 0)


class StorageError(CallError):
    """A request to the API failed.

    :ivar reason: its reason code, or ""
    :ivar status: of the response, or 0
    :ivar is_replayed: whether it is the stored response of an earlier request with the same key
    """

    def __init__(self, error: Exception) -> None:
        self.reason, self.status = reason_code(error), status_of(error)
        response = error.response if isinstance(error, exceptions.HttpException) else None
        self.is_replayed = response is not None and "Idempotent-Replayed" in response.headers
        by_status = _BY_STATUS.get(self.status, ErrorCode.UNAVAILABLE)
        code = _BY_REASON.get(self.reason, by_status)
        if isinstance(error, transport.ConnectTimeout):
            code = ErrorCode.DEADLINE_EXCEEDED
        super().__init__(code, f"{error}")


def is_about_size(error: StorageError) -> bool:
    """Return whether the API refuses the size of a volume."""
    return _is_about(error, "size", "new_size")


def is_about_zone(error: StorageError) -> bool:
    """Return whether the API refuses the zone of a volume: its source is in another one."""
    return _is_about(error, "availability_zone")


def _is_about(error: StorageError, *fields: str) -> bool:
    """Return whether the API refuses one of some fields, of whose names it shows the last part."""
    return error.reason == "invalid_input" and any(
        f"attribute {field}." in f"{error}" for field in fields
    )

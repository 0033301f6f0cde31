# SPDX-License-Identifier: Apache-2.0
"""Requests to attachd's API: each has the request id of the call, and ends before its limit."""

from collections.abc import Mapping
import http
from typing import Any, Final

from openstack import connection

from attachd.client.service import FAILURES, Sender
from attachd.platforms import calls
from attachd.platforms.calls import CallError, ErrorCode, NotReady
from attachd.platforms.errors import StorageError, status_of

_VERSION: Final = "volume 3.71, attachd 1.1"
_REFUSED: Final = frozenset(
    {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN, http.HTTPStatus.NOT_FOUND}
)
_LEAST: Final = 0.1
"""Seconds of a request that is made at the end of a call."""


class Api:
    """The Block Storage API of a cloud."""

    def __init__(self, cloud: connection.Connection) -> None:
        self._sender = Sender(cloud)

    def check(self) -> None:
        """Check that the API answers this user.

        :raises NotReady: it does not answer
        :raises CallError: FAILED_PRECONDITION: it refuses this user, or is not there
        """
        try:
            self._request("GET", "/attachments?limit=1")
        except FAILURES as error:
            if status_of(error) in _REFUSED:
                raise CallError(ErrorCode.FAILED_PRECONDITION, f"{error}") from error
            raise NotReady(f"{error}") from error

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request; return the body of the response, or None.

        :raises StorageError: it failed
        """
        try:
            return self._request(method, path, body, headers)
        except FAILURES as error:
            raise StorageError(error) from error

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        call = calls.current()
        return self._sender.send(
            method,
            path,
            {"OpenStack-API-Version": _VERSION, **(headers or {})},
            json=body,
            global_request_id=call.request_id,
            timeout=max(call.remaining, _LEAST),
        )

# SPDX-License-Identifier: Apache-2.0
"""The calls of attachd's API that the Controller service makes; each has its limit in time."""

import functools
import http
from typing import Any, Final

import grpc
from openstack import connection, exceptions

from attachd.client.service import FAILURES, readable_errors
from attachd.csi import calls
from attachd.csi.calls import CallError, NotReady

_VERSION: Final = "volume 3.71, attachd 1.1"
_REFUSED: Final = frozenset(
    {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN, http.HTTPStatus.NOT_FOUND}
)


class Storage:
    """The Block Storage API of a cloud.

    Its methods raise CallError.
    """

    def __init__(self, cloud: connection.Connection) -> None:
        self._cloud = cloud

    @functools.cached_property
    def _proxy(self) -> Any:
        # It asks for a token and for versions, so it can fail as any other request.
        return self._cloud.block_storage

    def check(self) -> None:
        """Check that the API answers this user.

        :raises NotReady: it does not answer
        :raises CallError: FAILED_PRECONDITION: it refuses this user, or is not there
        """
        try:
            self._request("GET", "/attachments?limit=1")
        except FAILURES as error:
            status = error.status_code if isinstance(error, exceptions.HttpException) else None
            if status in _REFUSED:
                raise CallError(grpc.StatusCode.FAILED_PRECONDITION, f"{error}") from error
            raise NotReady(f"{error}") from error

    def _request(self, method: str, path: str, **request: Any) -> Any:
        call = calls.current()
        with readable_errors():
            answer = self._proxy.request(
                path,
                method,
                headers={"OpenStack-API-Version": _VERSION},
                global_request_id=call.request_id,
                timeout=max(call.remaining, 0.1),
                raise_exc=False,
                **request,
            )
            exceptions.raise_from_response(answer)
        return answer.json() if answer.content else None

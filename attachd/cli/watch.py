# SPDX-License-Identifier: Apache-2.0
"""Watch events of attachments, over outages of the API; for events.py.

Each answer has the revision to continue from, so no event is repeated or missed.
"""

from collections.abc import Callable, Iterator, Mapping
import functools
import http
import logging
import math
import time
from typing import Final, TypeVar

from keystoneauth1 import exceptions as transport
from openstack import exceptions
import tenacity

from attachd.cli.blockstorage import BlockStorage, Event

LOG = logging.getLogger(__name__)

LONG_POLL_SECONDS: Final = 50
"""Seconds that an answer may take: a proxy often times out after a minute."""
MIN_BACKOFF: Final = 1.0
"""Seconds before the first retry; they double with each failure."""
MAX_BACKOFF: Final = 30.0
_BACKOFF: Final = tenacity.wait_exponential(MIN_BACKOFF, MAX_BACKOFF)

_SOON: Final = 0.5
"""Seconds; a server that supports waiting takes longer."""
_RETRIABLE_STATUSES: Final = {
    http.HTTPStatus.TOO_MANY_REQUESTS,
    http.HTTPStatus.BAD_GATEWAY,
    http.HTTPStatus.SERVICE_UNAVAILABLE,
    http.HTTPStatus.GATEWAY_TIMEOUT,
}
_BROKEN: Final = (transport.RetriableConnectionFailure, transport.UnknownConnectionError)

Answer = TypeVar("Answer")


class WatchTimeout(Exception):
    """The time is over."""


class EventWatcher:
    """Watches events of attachments.

    If the first request cannot reach the API, that is an error.  Later requests are retried, and
    so are those that the API answers as temporarily unavailable.

    :param seconds: duration of the watch; None: unlimited
    """

    def __init__(self, storage: BlockStorage, seconds: float | None = None) -> None:
        self._storage = storage
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        self._answered = False

    def now(self) -> int:
        """Return the current revision.

        :raises WatchTimeout: it took too long
        """
        ask = functools.partial(self._storage.events, {})
        return self.retry(ask)[1]

    def since(self, revision: int, query: Mapping[str, str]) -> Iterator[Event]:
        """Yield the events after a revision, as they happen.

        :param query: filters
        :raises WatchTimeout: the time is over
        """
        while self._left() > 0:
            started = time.monotonic()
            found, reached = self.retry(functools.partial(self._poll, revision, query))
            yield from found
            if reached == revision and time.monotonic() - started < _SOON:
                # It does not wait: it is about to end.
                self._pause(MIN_BACKOFF)
            revision = reached
        raise WatchTimeout

    def _poll(self, revision: int, query: Mapping[str, str]) -> tuple[list[Event], int]:
        """Request the events since a revision, and wait for the rest of the time at most."""
        wait = max(1, math.ceil(min(LONG_POLL_SECONDS, self._left())))
        asked = {**query, "since": f"{revision}", "wait": f"{wait}"}
        return self._storage.events(asked, wait)

    def retry(self, ask: Callable[[], Answer]) -> Answer:
        """Repeat a request until it succeeds.

        :raises WatchTimeout: the time is over
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._is_retriable),
            wait=_wait,
            sleep=self._pause,
        )
        answer = retrying(ask)
        self._answered = True
        return answer

    def _is_retriable(self, error: BaseException) -> bool:
        """Return whether a retry can succeed."""
        if isinstance(error, exceptions.HttpException):
            return error.status_code in _RETRIABLE_STATUSES
        if isinstance(error, transport.HttpError):
            return error.http_status in _RETRIABLE_STATUSES
        return self._answered and isinstance(error, _BROKEN)

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _pause(self, seconds: float) -> None:
        left = self._left()
        time.sleep(max(0.0, min(seconds, left)))
        if left <= seconds:
            raise WatchTimeout


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the seconds to wait after a failure; log the first one."""
    error = None if state.outcome is None else state.outcome.exception()
    if state.attempt_number == 1:
        LOG.warning("%s. Trying again", f"{error}".rstrip("."))
    return _retry_after(error) or _BACKOFF(state)


def _retry_after(error: BaseException | None) -> float:
    """Return the seconds of the Retry-After header; 0: there is none."""
    response = getattr(error, "response", None)
    seconds = "" if response is None else response.headers.get("Retry-After", "")
    return min(MAX_BACKOFF, float(seconds)) if seconds.isascii() and seconds.isdigit() else 0.0

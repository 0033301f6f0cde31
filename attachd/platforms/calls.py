# SPDX-License-Identifier: Apache-2.0
"""The call of a container platform that a thread serves, and how calls fail."""

from collections.abc import Callable, Iterator
import contextlib
import contextvars
import dataclasses
import enum
import logging
import time
from typing import Final
import uuid

LONGEST: Final = 60.0
"""Seconds that a call may take whose caller has set no limit."""
_MARGIN: Final = 0.5
"""Seconds before the limit of the caller in which the answer still arrives; of short limits, a
tenth."""


class ErrorCode(enum.Enum):
    """Why a call fails, by the names that statuses of gRPC have.

    Source: CSI 1.12, "Error Scheme".
    """

    ABORTED = enum.auto()
    ALREADY_EXISTS = enum.auto()
    CANCELLED = enum.auto()
    DEADLINE_EXCEEDED = enum.auto()
    FAILED_PRECONDITION = enum.auto()
    INTERNAL = enum.auto()
    INVALID_ARGUMENT = enum.auto()
    NOT_FOUND = enum.auto()
    OUT_OF_RANGE = enum.auto()
    PERMISSION_DENIED = enum.auto()
    RESOURCE_EXHAUSTED = enum.auto()
    UNAVAILABLE = enum.auto()


class CallError(Exception):
    """A call fails.

    :ivar code: why, for programs
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotReady(Exception):
    """A service cannot work now and will by itself, such as while the API does not answer."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call.

    :ivar request_id: as oslo.context makes them; attachd logs it as the global request id
    :ivar deadline: in time.monotonic() seconds; the call has to be answered by then
    :ivar is_awaited: returns whether the caller still waits for the answer
    """

    request_id: str
    deadline: float
    is_awaited: Callable[[], bool] = lambda: True

    @classmethod
    def start(
        cls,
        time_limit: float | None,
        longest: float = LONGEST,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> "Call":
        """Return a new call.

        :param time_limit: seconds that the caller waits; None: it has set no limit
        :param longest: seconds that the call may take in any case
        """
        seconds = longest
        if time_limit is not None:
            seconds = min(time_limit - min(_MARGIN, time_limit / 10), longest)
        return cls(f"req-{uuid.uuid4()}", time.monotonic() + seconds, is_awaited)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, not less than zero."""
        return max(self.deadline - time.monotonic(), 0.0)

    def check_caller(self) -> None:
        """Check that the caller still waits: it may have made the opposite call since.

        :raises CallError: CANCELLED: it does not
        """
        if not self.is_awaited():
            raise CallError(ErrorCode.CANCELLED, "The caller has ended the call.")


_CURRENT: contextvars.ContextVar[Call | None] = contextvars.ContextVar("call", default=None)


def current() -> Call:
    """Return the call that this thread serves, or a new one outside of calls."""
    return _CURRENT.get() or Call.start(None)


@contextlib.contextmanager
def serving(call: Call) -> Iterator[None]:
    """Make a call the current one of this thread."""
    token = _CURRENT.set(call)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class RequestIds(logging.Filter):
    """Gives each log record the request id of its call, or "-"."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add ``request_id`` to a record, and keep it."""
        call = _CURRENT.get()
        record.request_id = call.request_id if call else "-"
        return True

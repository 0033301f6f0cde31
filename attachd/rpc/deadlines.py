# SPDX-License-Identifier: Apache-2.0
"""Until when the caller waits for the call that a thread executes."""

from collections.abc import Iterator
import contextlib
import contextvars
import time
from typing import Final

from attachd.conf import CONF

MINIMUM: Final = 1.0
"""Seconds in which a call may wait for what is just being released."""

_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("deadline", default=None)


@contextlib.contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Execute a call in the block, for whose answer its caller waits so long."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left() -> float:
    """Return for how long this thread's work may wait for other work, at least MINIMUM.

    Without a caller that waits it is [rpc]attach_timeout.
    """
    deadline = _deadline.get()
    if deadline is None:
        return float(CONF.rpc.attach_timeout)
    return max(MINIMUM, deadline - time.monotonic())

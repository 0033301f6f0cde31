# SPDX-License-Identifier: Apache-2.0
"""Time the steps of the operation that a thread executes, for events and metrics.

::

    with step_timer.operation():
        with step_timer.step("grant"):
            driver.grant(...)
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import threading
import time

from oslo_utils import timeutils


@dataclasses.dataclass(frozen=True)
class Step:
    """A step that has ended.

    :ivar name: as in ``grant``
    :ivar seconds: how long it took
    :ivar failed: whether it ended with an error
    """

    name: str
    seconds: float
    failed: bool = False


@dataclasses.dataclass
class Operation:
    """An operation in progress.

    :ivar began_at: UTC without a zone, as the tables have it
    :ivar steps: steps that have ended, in order
    """

    began_at: datetime.datetime = dataclasses.field(default_factory=timeutils.utcnow)
    steps: list[Step] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Duration so far."""
        return time.monotonic() - self.started


class _State(threading.local):
    operation: Operation | None = None


_state = _State()


def current() -> Operation | None:
    """Return the operation of this thread; None: it has none."""
    return _state.operation


@contextlib.contextmanager
def operation() -> Iterator[Operation]:
    """Start an operation of this thread, which ends with the block."""
    before, _state.operation = _state.operation, Operation()
    try:
        yield _state.operation
    finally:
        _state.operation = before


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Record the duration of the block, if this thread has an operation."""
    current_operation = _state.operation
    if current_operation is None:
        yield
        return
    started, failed = time.monotonic(), True
    try:
        yield
        failed = False
    finally:
        current_operation.steps.append(Step(name, time.monotonic() - started, failed))

# SPDX-License-Identifier: Apache-2.0
"""What the thread at hand works on, step by step; managers write it, db/events and metrics read.

::

    with work.begun():
        with work.step("grant"):
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
    """One thing that was done.

    :ivar name: as in ``grant``
    :ivar seconds: how long it took
    :ivar failed: whether it ended with an error
    """

    name: str
    seconds: float
    failed: bool = False


@dataclasses.dataclass
class Work:
    """A piece of work that has begun.

    :ivar began_at: UTC without a zone, as the tables have it
    :ivar steps: what of it has ended, in order
    """

    began_at: datetime.datetime = dataclasses.field(default_factory=timeutils.utcnow)
    steps: list[Step] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.started


class _Here(threading.local):
    at: Work | None = None


_here = _Here()


def current() -> Work | None:
    """Return what this thread works on; None: nothing that takes long."""
    return _here.at


@contextlib.contextmanager
def begun() -> Iterator[Work]:
    """Say that this thread works on something else now, until the end of the block."""
    before, _here.at = _here.at, Work()
    try:
        yield _here.at
    finally:
        _here.at = before


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Note how long the block takes, if it is part of a piece of work."""
    at = _here.at
    if at is None:
        yield
        return
    started, failed = time.monotonic(), True
    try:
        yield
        failed = False
    finally:
        at.steps.append(Step(name, time.monotonic() - started, failed))

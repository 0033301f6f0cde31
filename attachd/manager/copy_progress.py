# SPDX-License-Identifier: Apache-2.0
"""How much of a copy is done, stored in its row now and then while a driver reports it."""

from collections.abc import Callable, Iterator
import contextlib
import time
from typing import Final

from oslo_log import log

from attachd import exception
from attachd.drivers import base

LOG = log.getLogger(__name__)

INTERVAL: Final = 5.0
"""Seconds between two records of the progress of a copy."""

COMPLETE: Final = 100
"""Per cent."""


class _Progress:
    """The progress of one copy.

    :param subject: what is copied, in messages, such as ``Volume UUID``
    :param store: takes the per cent
    """

    def __init__(self, subject: str, store: Callable[[int], object]) -> None:
        self._subject = subject
        self._store = store
        self._percent = 0
        self._next_at = time.monotonic() + INTERVAL

    def record(self, fraction: float) -> None:
        """Store a fraction, now and then; a failure does not affect the copy."""
        percent = round(max(0.0, min(fraction, 1.0)) * COMPLETE)
        if percent == self._percent or time.monotonic() < self._next_at:
            return
        self._percent, self._next_at = percent, time.monotonic() + INTERVAL
        try:
            self._store(percent)
        except exception.Unavailable as error:
            LOG.info("%s: progress not stored: %s", self._subject, error)


@contextlib.contextmanager
def stored(subject: str, store: Callable[[int], object]) -> Iterator[None]:
    """Store the progress that is reported in the block; see :class:`_Progress`."""
    with base.progress_scope(_Progress(subject, store).record):
        yield

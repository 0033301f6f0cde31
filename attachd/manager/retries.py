# SPDX-License-Identifier: Apache-2.0
"""When to try again what has failed, ever more seldom; for recovery.py."""

from collections.abc import Collection
import time
from typing import NamedTuple

FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0
"""Seconds after a failure; each further one of the same row doubles them."""


class _Failure(NamedTuple):
    pause: float
    due: float


class Retries:
    """What has failed, by the id of its row, and when it is due once more."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}

    def knows(self, row_id: str) -> bool:
        """Tell whether a row has failed, and not succeeded since."""
        return row_id in self._failures

    def is_due(self, row_id: str) -> bool:
        """Tell whether a row may be tried now."""
        known = self._failures.get(row_id)
        return known is None or time.monotonic() >= known.due

    def failed(self, row_id: str) -> None:
        """Note that a row could not be dealt with."""
        known = self._failures.get(row_id)
        pause = FIRST_PAUSE if known is None else min(2 * known.pause, LONGEST_PAUSE)
        self._failures[row_id] = _Failure(pause, time.monotonic() + pause)

    def succeeded(self, row_id: str) -> None:
        """Forget a row's failures."""
        self._failures.pop(row_id, None)

    def keep_only(self, row_ids: Collection[str]) -> None:
        """Forget all rows but these: somebody else has dealt with the others."""
        self._failures = {each: known for each, known in self._failures.items() if each in row_ids}

    def forget_all(self) -> None:
        """Try everything at once, since what stood in the way may be gone."""
        self._failures.clear()

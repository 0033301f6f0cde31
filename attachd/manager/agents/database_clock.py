# SPDX-License-Identifier: Apache-2.0
"""The clock of the database, as far as it goes as the one of this process, which is never set."""

import datetime
import math
from typing import Final

TOLERANCE: Final = 1.0
"""Seconds by which it may go forward more than ours before moments are not compared any more."""

_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  as the database has it: in UTC


class DatabaseClock:
    """A comparison of both clocks, again and again; used by one thread only.

    What the database's clock is ahead of ours counts as the least that was seen since they agree:
    an answer that was long in coming, or a clock that went a little faster, makes a moment of the
    past appear later, and never earlier.
    """

    def __init__(self) -> None:
        self._offset = math.inf
        self._since = math.inf

    def reset(self) -> None:
        """Forget what was seen: no moment before the next comparison is known."""
        self._offset = self._since = math.inf

    def compare(self, database_now: datetime.datetime, now: float) -> None:
        """Compare the clocks.

        :param database_now: the present by the database's clock
        :param now: that by ours, read after it
        """
        offset = _seconds(database_now) - now
        if math.isinf(self._offset) or offset - self._offset > TOLERANCE:
            self._offset, self._since = offset, now
        self._offset = min(self._offset, offset)

    def get_time(self, moment: datetime.datetime) -> float:
        """Return when a moment of the database's clock was by ours, at the latest.

        That is not before the comparison since which the clocks agree.
        """
        return max(self._since, _seconds(moment) - self._offset)


def _seconds(moment: datetime.datetime) -> float:
    return (moment - _EPOCH).total_seconds()

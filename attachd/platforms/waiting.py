# SPDX-License-Identifier: Apache-2.0
"""Waits for work that attachd goes on with when the caller has given up."""

from collections.abc import Collection
import time
from typing import Final

from attachd.platforms import calls
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.resources import Resources, T

BEING_CREATED: Final = frozenset({"creating", "managing"})
BEING_DELETED: Final = frozenset({"deleting", "error_deleting"})
"""Statuses of volumes and snapshots."""

_FIRST: Final = 0.05
_LONGEST: Final = 0.5
"""Seconds between two reads: the first pause, which doubles, and the longest."""


class Pauses:
    """The pauses between reads in a call."""

    def __init__(self) -> None:
        self._next = _FIRST

    def take(self, what: str) -> None:
        """Sleep until the next read.

        :param what: a sentence without its full stop: the work that goes on
        :raises CallError: ABORTED: the caller does not wait so long
        """
        if calls.current().remaining <= self._next:
            raise aborted(what)
        time.sleep(self._next)
        self._next = min(2 * self._next, _LONGEST)


def wait_while(
    resources: Resources[T], resource: T, statuses: Collection[str], work: str
) -> T | None:
    """Return a resource as it is when it has none of these statuses; None: it is gone.

    :param resources: those of its kind
    :param work: what follows "Volume ID is", such as "being created"
    :raises CallError: ABORTED: the caller does not wait so long
    """
    pauses, current = Pauses(), resource
    while current.status in statuses:
        pauses.take(f"{resources.describe(resource.id)} is {work}")
        found = resources.get(resource.id)
        if found is None:
            return None
        current = found
    return current


def aborted(what: str) -> CallError:
    """Return the error of a call whose work goes on, or that other work prevents for now.

    :param what: a sentence without its full stop
    """
    return CallError(ErrorCode.ABORTED, f"{what}. Repeat the call later.")

# SPDX-License-Identifier: Apache-2.0
"""Waits only so long for what may hang, such as a command of a host; for what a report needs."""

from collections.abc import Callable
from concurrent import futures
import threading
from typing import Generic, TypeVar

from attachd import exception

T = TypeVar("T")


SECONDS = 10.0
"""How long a host is looked at, before it is said that it does not answer."""


class StillBusy(exception.HostError):
    """What was begun has not ended yet; it goes on."""

    msg_fmt = (
        "This host has not told within %(seconds)d s how it is: a command of it hangs, such as "
        "iscsiadm or multipathd. Look at its processes."
    )


class Patience(Generic[T]):
    """One kind of work, in a thread of its own; begun once more only after its last end.

    :param seconds: to wait for it each time; None: :data:`SECONDS`
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = SECONDS if seconds is None else seconds
        self._begun: futures.Future[T] | None = None

    def run(self, act: Callable[[], T]) -> T:
        """Return what this work returns, or an earlier one that was still going on.

        Only one thread asks.

        :raises StillBusy: it goes on
        :raises: what the work raises
        """
        if self._begun is None:
            self._begun = futures.Future()
            # It keeps nobody from ending.
            threading.Thread(target=_do, args=(act, self._begun), daemon=True).start()
        if not futures.wait([self._begun], self._seconds).done:
            raise StillBusy(seconds=self._seconds)
        ended, self._begun = self._begun, None
        return ended.result()


def _do(act: Callable[[], T], outcome: futures.Future[T]) -> None:
    try:
        outcome.set_result(act())
    except BaseException as error:  # noqa: BLE001  whoever waits raises it
        outcome.set_exception(error)

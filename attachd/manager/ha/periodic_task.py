# SPDX-License-Identifier: Apache-2.0
"""What is done for a backend again and again, in a thread of its own; see caretaker.py."""

import abc
import threading

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.manager.backends import Backend

LOG = log.getLogger(__name__)

LONGEST_PAUSE = 3.0
"""Seconds between two rounds, unless [manager]report_interval is shorter."""


class Rounds(abc.ABC):
    """One kind of care for one backend in one process."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._wake = threading.Event()

    @abc.abstractmethod
    def once(self) -> None:
        """Do one round."""

    def failed(self) -> None:  # noqa: B027  most need not know
        """Take note that a round has ended with an error."""

    def wake(self) -> None:
        """Have the next round begin now: something has happened."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Repeat until ``stop`` is set, which is followed by :meth:`wake`; meant for a thread."""
        while not stop.is_set():
            try:
                self.once()
            except Exception as error:  # noqa: BLE001  the next one may go well
                self.failed()
                self._tell_of(error)
            self._wake.wait(min(CONF.manager.report_interval, LONGEST_PAUSE))
            self._wake.clear()

    def _tell_of(self, error: Exception) -> None:
        """Log a failure; a database that does not answer needs no traceback each time."""
        unforeseen = not isinstance(error, exception.Unavailable)
        LOG.error(
            "The care for backend %s failed, trying again: %s",
            self._backend.name,
            error,
            exc_info=error if unforeseen else None,
        )

# SPDX-License-Identifier: Apache-2.0
"""Finishes and undoes what was left half-way at one backend, and ends reservations in time.

It takes as long as the backend takes.  A report, which tells others that the backend lives, must
not wait for it, and it must not wait for the healing of a thousand exports.
"""

from attachd.manager import expiry
from attachd.manager.backends import Backend
from attachd.manager.ha import recovery
from attachd.manager.ha.periodic_task import Rounds
from attachd.manager.retries import Retries


class Caretaker(Rounds):
    """One backend in one process: recovery of rows, end of reservations."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._retries = Retries()
        self._resumed = False

    def failed(self) -> None:
        """Look at all rows again: without the database, workers could write down nothing."""
        self._resumed = False

    def once(self) -> None:
        """Finish what was left half-way."""
        if self._backend.error is not None:
            self._resumed = False
            self._retries.forget_all()
            recovery.free_leftovers(self._backend)  # Others may be able to go on.
            return
        if self._resumed:
            recovery.pick_up(self._backend, self._retries)
        else:
            recovery.resume(self._backend, self._retries)
            self._resumed = True
        expiry.expire(self._backend)

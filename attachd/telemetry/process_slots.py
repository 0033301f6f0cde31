# SPDX-License-Identifier: Apache-2.0
"""Gives each living process of a machine a small number of its own; for recording.

What a process counts is in files with its number.  The next one that gets the number goes on
counting there, so there are never more files than there were processes at once, and no counter
goes back when a process ends.
"""

import fcntl
import os
from pathlib import Path
import threading


class Slots:
    """The numbers of those who share a folder; a process has one until it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._owner = 0
        self._number = 0
        self._file: int | None = None

    def mine(self) -> int:
        """Return the number of the process that asks; a forked one has another than its parent.

        :raises OSError: the folder cannot be used
        """
        if self._owner == os.getpid():
            return self._number
        with self._lock:
            if self._owner != os.getpid():
                self._take()
            return self._number

    def _take(self) -> None:
        former, self._file = self._file, None
        if former is not None:
            os.close(former)  # the parent's, whose lock this does not end
        number = 0
        while (file := _locked(self._folder / f"process-{number}.lock")) is None:
            number += 1
        self._file, self._number, self._owner = file, number, os.getpid()


def _locked(path: Path) -> int | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file

# SPDX-License-Identifier: Apache-2.0
"""Turns of the threads and processes of one machine; for leases.py.

Many hosts may want one volume at once.  So nobody looks again and again whether it is free, which
leaves it unused in between and hands it to whoever is lucky: the threads of a process line up, and
the first of each line waits in the kernel for a file's lock.  Of several processes, one at a time
waits at the gate, a second file; whoever has passed it is the next, so that no process has all its
threads served one after the other.

The kernel frees what a dead process held.  What a sleeping one holds is waited for in vain: after
some time the others go on without an order, and the lease alone says who may work.
"""

from collections import deque
from collections.abc import Iterator
import contextlib
import fcntl
import os
from pathlib import Path
import threading
import time

_GATE = ".gate"

_mutex = threading.Lock()
_lines: dict[str, deque[threading.Lock]] = {}
"""Of each turn that somebody in this process has or wants: the line, who has it at its head."""


class Late(Exception):
    """Our turn has not come in time."""


@contextlib.contextmanager
def taken(path: str, patience: float, order: float) -> Iterator[None]:
    """Have our turn.

    :param path: of its file, which is made and stays; see :func:`forget`
    :param patience: seconds to wait for the threads of this process
    :param order: seconds to wait for other processes; after that, things go without them
    :raises Late: the threads before us took too long
    """
    with _head_of_line(path, patience), contextlib.ExitStack() as stack:
        deadline = time.monotonic() + order
        with _locked(path + _GATE, deadline):
            stack.enter_context(_locked(path, deadline))
        yield


def is_free(path: str) -> bool:
    """Tell whether it is nobody's turn at this moment."""
    with _mutex:
        if path in _lines:
            return False
    file = _open(path)
    try:
        if not _try(file):
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)
    return True


def lines() -> list[tuple[str, int]]:
    """Return the names of the turns that this process has or wants, and how many want each.

    It waits for no lock, so that a process that hangs can tell; it may be wrong by one.
    """
    return [(Path(path).name, len(line)) for path, line in list(_lines.items())]


def forget(path: str) -> None:
    """Remove the files of a turn that nobody is going to need; whoever has it does it."""
    for each in (path, path + _GATE):
        Path(each).unlink(missing_ok=True)


@contextlib.contextmanager
def _head_of_line(path: str, patience: float) -> Iterator[None]:
    """Wait for the threads of this process that came before us."""
    ours = threading.Lock()
    ours.acquire()
    with _mutex:
        line = _lines.setdefault(path, deque())
        if not line:
            ours.release()
        line.append(ours)
    try:
        if not ours.acquire(timeout=patience):
            raise Late
        yield
    finally:
        _step_out(path, line, ours)


def _step_out(path: str, line: deque[threading.Lock], ours: threading.Lock) -> None:
    with _mutex:
        was_first = line[0] is ours
        line.remove(ours)
        if not line:
            del _lines[path]
        elif was_first:
            line[0].release()


@contextlib.contextmanager
def _locked(path: str, deadline: float) -> Iterator[None]:
    file = _open(path)
    if not _try(file):
        wait = _Wait(file)
        if not wait.until(deadline):
            yield  # The thread that waits has the file now.
            return
    try:
        yield
    finally:
        # A tool that is just being started may have the file open as well for a moment.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


class _Wait:
    """Waits for a file's lock in a thread of its own, since nothing else ends such a wait."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._mutex = threading.Lock()
        self._given_up = False
        self._came = threading.Event()
        threading.Thread(target=self._wait, name="turn", daemon=True).start()

    def until(self, deadline: float) -> bool:
        """Tell whether we have it in time; if not, the file is not ours any more."""
        self._came.wait(max(deadline - time.monotonic(), 0))
        with self._mutex:
            self._given_up = not self._came.is_set()
            return not self._given_up

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._mutex:
            self._came.set()
            if self._given_up:
                fcntl.flock(self._file, fcntl.LOCK_UN)
                os.close(self._file)


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: str) -> int:
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)

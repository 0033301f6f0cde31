# SPDX-License-Identifier: Apache-2.0
"""Locks of this machine, had in turn by threads and processes; for backends.py.

Many hosts may want one volume at once.  So nobody looks again and again whether a lock is free,
which leaves it unused in between and hands it to whoever is lucky: the threads of a process line
up, and the first of each line waits in the kernel.  Of several processes, one at a time waits at
the gate of a lock, a second file; whoever has passed it is the next to have the lock, so that no
process keeps it for all its threads one after the other.

The kernel frees what a dead process held.
"""

from collections import deque
from collections.abc import Iterator
import contextlib
import fcntl
import os
from pathlib import Path
import threading

_GATE = ".gate"

_mutex = threading.Lock()
_lines: dict[Path, deque[threading.Lock]] = {}
"""Of each lock that somebody in this process has or wants: the line, who has it at its head."""


@contextlib.contextmanager
def taken(path: Path) -> Iterator[None]:
    """Have a lock, as soon as it is our turn.

    :param path: of its file, which is made and stays; see :func:`forget`
    """
    with _head_of_line(path), contextlib.ExitStack() as stack:
        with _locked(path.with_name(path.name + _GATE)):
            stack.enter_context(_locked(path))
        yield


def is_free(path: Path) -> bool:
    """Tell whether nobody has a lock at this moment."""
    with _mutex:
        if path in _lines:
            return False
    file = _open(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def forget(path: Path) -> None:
    """Remove the files of a lock that nobody is going to need; its holder does it."""
    for each in (path, path.with_name(path.name + _GATE)):
        each.unlink(missing_ok=True)


@contextlib.contextmanager
def _head_of_line(path: Path) -> Iterator[None]:
    """Wait for the threads of this process that came before us."""
    ours = threading.Lock()
    ours.acquire()
    with _mutex:
        line = _lines.setdefault(path, deque())
        if not line:
            ours.release()
        line.append(ours)
    with ours:
        try:
            yield
        finally:
            with _mutex:
                line.popleft()
                if line:
                    line[0].release()
                else:
                    del _lines[path]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = _open(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        # A tool that is just being started may have the file open as well for a moment.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

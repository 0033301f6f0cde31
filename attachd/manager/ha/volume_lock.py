# SPDX-License-Identifier: Apache-2.0
"""Fair locks of volumes between the threads and processes of one machine.

Many hosts may want one volume at once.  Polling would leave the volume idle between two polls and
would favour some callers by chance.  So the threads of a process queue up, and the first thread of
each queue waits in the kernel for a file lock.  Of several processes, one at a time waits at the
gate, a second file; the process that has passed the gate is next.  So no process has all its
threads served one after the other.

The kernel releases the locks of a dead process.  A suspended process keeps its locks: after a
timeout the others go on without an order, and the lease alone decides who may work
(volume_lease.py).
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
_waiters: dict[str, deque[threading.Lock]] = {}
"""The threads of this process that hold or want each lock, by path; the holder is the first."""


class LockTimeout(Exception):
    """The lock was not acquired in time."""


@contextlib.contextmanager
def acquire(path: str, timeout: float, ipc_timeout: float) -> Iterator[None]:
    """Hold a lock.

    :param path: its file, which is created and stays; see :func:`delete_files`
    :param timeout: seconds to wait for the threads of this process
    :param ipc_timeout: seconds to wait for other processes; after that, go on without their locks
    :raises LockTimeout: earlier threads of this process took too long
    """
    with _acquire_in_process(path, timeout), contextlib.ExitStack() as stack:
        deadline = time.monotonic() + ipc_timeout
        with _acquire_file(path + _GATE, deadline):
            stack.enter_context(_acquire_file(path, deadline))
        yield


def is_free(path: str) -> bool:
    """Return whether no thread of this machine holds the lock at this moment."""
    with _mutex:
        if path in _waiters:
            return False
    file = _open(path)
    try:
        if not _try_lock(file):
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)
    return True


def waiters() -> list[tuple[str, int]]:
    """Return the locks that this process holds or wants, and how many threads want each.

    The function takes no lock, so that it also answers in a process that hangs; a count may be
    wrong by one.
    """
    return [(Path(path).name, len(queue)) for path, queue in list(_waiters.items())]


def delete_files(path: str) -> None:
    """Remove the files of a lock that is not needed any more; its holder does so."""
    for name in (path, path + _GATE):
        Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def _acquire_in_process(path: str, timeout: float) -> Iterator[None]:
    """Wait for the earlier threads of this process."""
    own_lock = threading.Lock()
    own_lock.acquire()
    with _mutex:
        queue = _waiters.setdefault(path, deque())
        if not queue:
            own_lock.release()
        queue.append(own_lock)
    try:
        if not own_lock.acquire(timeout=timeout):
            raise LockTimeout
        yield
    finally:
        _release(path, queue, own_lock)


def _release(path: str, queue: deque[threading.Lock], own_lock: threading.Lock) -> None:
    with _mutex:
        was_first = queue[0] is own_lock
        queue.remove(own_lock)
        if not queue:
            del _waiters[path]
        elif was_first:
            queue[0].release()


@contextlib.contextmanager
def _acquire_file(path: str, deadline: float) -> Iterator[None]:
    file = _open(path)
    if not _try_lock(file):
        waiter = _FileLockWaiter(file)
        if not waiter.wait_until(deadline):
            yield  # The waiting thread owns the file now.
            return
    try:
        yield
    finally:
        # A tool that is just being started may have the file open as well for a moment.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


class _FileLockWaiter:
    """A thread that waits for a file lock, because nothing else can end such a wait."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._mutex = threading.Lock()
        self._timed_out = False
        self._acquired = threading.Event()
        threading.Thread(target=self._wait, name="volume-lock", daemon=True).start()

    def wait_until(self, deadline: float) -> bool:
        """Return whether the lock was acquired in time; if not, the thread owns the file."""
        self._acquired.wait(max(deadline - time.monotonic(), 0))
        with self._mutex:
            self._timed_out = not self._acquired.is_set()
            return not self._timed_out

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._mutex:
            self._acquired.set()
            if self._timed_out:
                fcntl.flock(self._file, fcntl.LOCK_UN)
                os.close(self._file)


def _try_lock(file: int) -> bool:
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

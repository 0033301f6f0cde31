# SPDX-License-Identifier: Apache-2.0
"""The exclusive right to work on a volume, or on a snapshot: the lock of this machine, then the
lease in the row.

Many hosts may want one volume at once.  Polling would leave the volume idle between two polls and
would favour some callers by chance.  So the threads of a process queue up, and the first thread of
each queue waits in the kernel for a file lock.  Of several processes, one at a time waits at the
gate, a second file; the process that has passed the gate is next.  So no process has all its
threads served one after the other.  The kernel releases the locks of a dead process.

The file locks set only a fair order on one machine.  Exclusion comes from the lease in the
volume's row (db/cluster/volume_leases.py), which processes of other machines see as well, and
which ends with the process that holds it.  A suspended process keeps its file locks: after a
timeout the others go on without an order, and the lease alone decides which process may work.
"""

from collections import deque
from collections.abc import Callable, Iterator
import contextlib
from contextlib import AbstractContextManager
import fcntl
import os
from pathlib import Path
import threading
import time
from typing import TypeVar

from oslo_log import log
import tenacity

from attachd import exception
from attachd.conf import CONF
from attachd.db.cluster import volume_leases
from attachd.db.cluster.volume_leases import VolumeLeaseToken
from attachd.drivers import base
from attachd.manager.ownership.membership import Membership
from attachd.rpc import deadlines
from attachd.telemetry import metrics, tracing

LOG = log.getLogger(__name__)

R = TypeVar("R")

_GATE = ".gate"
_CHECK_SIZE = 4096

_mutex = threading.Lock()
_waiters: dict[str, deque[threading.Lock]] = {}
"""The threads of this process that hold or want each lock, by path; the holder is the first."""


_RETRYING = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(volume_leases.VolumeLeaseHeld),
    wait=tenacity.wait_random_exponential(multiplier=0.0075, max=0.375),
    reraise=True,
)
"""Tries to take a lease that a process of another machine holds; waits are in seconds."""


class VolumeLease:
    """The right of a thread, or of a group of them, to work on a volume.

    :param check: checks that this process is not taken over, see base.ownership(); None: there is
        none
    :ivar token: the database's lease; each transaction of the work takes it as an argument
    """

    def __init__(self, token: VolumeLeaseToken, check: Callable[[], None] | None = None) -> None:
        self.token = token
        self._check = check

    @property
    def subject(self) -> str:
        """The volume or the snapshot in messages."""
        return f"{self.token.kind.capitalize()} {self.token.volume_id}"

    @contextlib.contextmanager
    def ownership(self) -> Iterator[None]:
        """Let this thread work under the lease of another one for the block."""
        if self._check is None:
            yield
            return
        with base.ownership(self._check):
            yield

    def run_with_lease(self, transition: Callable[[VolumeLeaseToken], R]) -> R:
        """Call a transaction that acquires the lease, and repeat it until the lease is free.

        :param transition: one transaction; it takes the token
        :raises Unavailable: another process holds the lease for too long, or this process may
            have expired
        """
        with contextlib.suppress(volume_leases.VolumeLeaseHeld):
            return self._try_once(transition)
        try:
            retrying = _RETRYING.copy(stop=tenacity.stop_after_delay(deadlines.seconds_left()))
            result: R = retrying(self._try_once, transition)
        except volume_leases.VolumeLeaseHeld as held:
            raise exception.Unavailable(
                reason=f"{self.subject} is busy: the manager "
                f"{held.holder} works on it. Try again later."
            ) from None
        return result

    def _try_once(self, transition: Callable[[VolumeLeaseToken], R]) -> R:
        self._check_not_expired()
        return transition(self.token)

    def _check_not_expired(self) -> None:
        """Acquire no lease that other processes would take over at once."""
        try:
            base.check_still_owner()
        except exception.BackendError as error:
            if self.token.generation is None:
                raise exception.Unavailable(
                    reason=f"{self.subject} has to wait: its manager has no "
                    "contact with the others. Try again later."
                ) from error

    def is_held(self) -> bool:
        """Return whether the lease is still held, whether or not the last transaction committed.

        :raises Unavailable: the database does not answer
        """
        return volume_leases.is_held(self.token)

    def may_be_taken_over(self) -> bool:
        """Return whether the work may have failed because another process has taken it over.

        In that case no result is stored: the row still says what has to be done, for the process
        that takes it over.
        """
        try:
            base.check_still_owner()
        except exception.BackendError as error:
            LOG.warning("%s: left to other managers: %s", self.subject, error)
            return True
        return False


@contextlib.contextmanager
def acquire(
    membership: Membership, volume_id: str, path: str, table: str = volume_leases.VOLUMES
) -> Iterator[VolumeLease]:
    """Hold the lock of a volume or a snapshot, by a file, and release its lease at the end.

    :raises Unavailable: the lock is not free in time
    """
    with tracing.operation(), contextlib.ExitStack() as stack:
        with tracing.step("wait"):
            stack.enter_context(_volume_lock(volume_id, path))
        token = VolumeLeaseToken(volume_id, membership.id, table=table)
        volume_lease = VolumeLease(token, lambda: membership.check(token.holder))
        with volume_lease.ownership(), _releasing(token):
            yield volume_lease


def timed(
    backend: str, waiting: AbstractContextManager[VolumeLease]
) -> AbstractContextManager[VolumeLease]:
    """Return a context manager that also records the time of waiting, if metrics are on.

    :param backend: ``host@backend``
    :param waiting: as of :func:`acquire`
    """
    return _timed(backend, waiting) if metrics.is_enabled() else waiting


@contextlib.contextmanager
def _timed(backend: str, waiting: AbstractContextManager[VolumeLease]) -> Iterator[VolumeLease]:
    """Record the time until the lock is acquired."""
    with contextlib.ExitStack() as stack:
        with metrics.timed(metrics.STEPS, metrics.STEP_DURATION, backend, "wait"):
            volume_lease = stack.enter_context(waiting)
        yield volume_lease


@contextlib.contextmanager
def _volume_lock(volume_id: str, path: str) -> Iterator[None]:
    timeout, ipc_timeout = deadlines.seconds_left(), CONF.manager.member_timeout
    try:
        with file_lock(path, timeout, ipc_timeout):
            yield
    except LockTimeout:
        raise exception.Unavailable(
            reason=f"Volume {volume_id} is busy: other calls for it have not ended in "
            f"{timeout:.0f} s. Try again later."
        ) from None


@contextlib.contextmanager
def _releasing(token: VolumeLeaseToken) -> Iterator[None]:
    in_doubt = False
    try:
        yield
    except exception.Unavailable:
        in_doubt = True  # Only the database knows whether the lease was stored.
        raise
    finally:
        if token.generation is not None or in_doubt:
            _release(token)


def _release(token: VolumeLeaseToken) -> None:
    try:
        volume_leases.release(token)
    except exception.AttachdError as error:
        # This process holds it as long as it lives; recovery releases what is left.
        LOG.warning("Lease of %s %s was not released: %s", token.kind, token.volume_id, error)


class LockTimeout(Exception):
    """The lock was not acquired in time."""


@contextlib.contextmanager
def file_lock(path: str, timeout: float, ipc_timeout: float) -> Iterator[None]:
    """Hold the lock of a volume between the threads and processes of this machine.

    :param path: its file, which is created and stays; see :func:`delete_lock_files`
    :param timeout: seconds to wait for the threads of this process
    :param ipc_timeout: seconds to wait for other processes; after that, go on without their locks
    :raises LockTimeout: earlier threads of this process took too long
    """
    with _acquire_in_process(path, timeout), contextlib.ExitStack() as stack:
        deadline = time.monotonic() + ipc_timeout
        with _acquire_file(path + _GATE, deadline):
            stack.enter_context(_acquire_file(path, deadline))
        yield


def check_lock_files(path: str) -> None:
    """Check that a lock can be created, and that its file system stores what is written.

    :param path: of a file that no other process uses
    :raises Unavailable: with the reason
    """
    file = _open(path)
    try:
        Path(path).unlink()
        os.write(file, bytes(_CHECK_SIZE))
    except OSError as error:
        raise _unusable(error) from error
    finally:
        os.close(file)


def is_lock_free(path: str) -> bool:
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


def lock_waiters() -> list[tuple[str, int]]:
    """Return the locks that this process holds or wants, and how many threads want each.

    The function takes no lock, so that it also answers in a process that hangs; a count may be
    wrong by one.
    """
    return [(Path(path).name, len(queue)) for path, queue in list(_waiters.items())]


def delete_lock_files(path: str) -> None:
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
        _leave_queue(path, queue, own_lock)


def _leave_queue(path: str, queue: deque[threading.Lock], own_lock: threading.Lock) -> None:
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
    """Open a lock file, and create it; raises Unavailable."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    try:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags, 0o600)
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise _unusable(error) from error


def _unusable(error: OSError) -> exception.Unavailable:
    return exception.Unavailable(
        reason=f"The manager cannot use its lock files: {error.strerror}. An administrator checks "
        "[DEFAULT]state_path and the limits of the process."
    )

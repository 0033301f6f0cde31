# SPDX-License-Identifier: Apache-2.0
"""Processes for the work of an agent on volumes, which are killed if they hang.

A process that is killed leaves the host as an agent does that is killed at the same line: the
journal has the step, and the next reconciliation continues.  os-brick runs as root in them,
without the daemon of oslo.privsep, which would survive the kill.
"""

from collections.abc import Callable
import contextlib
import ctypes
import gc
from multiprocessing.connection import Connection, Pipe
import os
from pathlib import Path
import signal
import socket
import threading
import time
from typing import Final, NoReturn, TypeVar

from oslo_log import log

from attachd import exception

LOG = log.getLogger(__name__)

T = TypeVar("T")

KILL_TIMEOUT = 10.0
"""Seconds that a killed process may take to end, unless the kernel holds it."""

_PR_SET_PDEATHSIG: Final = 1
_ENDED: Final = {"Z", "X"}
"""States of processes in /proc that only their parent has yet to notice."""
_POLL_INTERVAL: Final = 0.05
_LOCK_INTERVAL: Final = 5.0


class Forker:
    """A process without threads, which forks a child for each call, and ends with its parent.

    Its parent makes it before it starts threads: to fork a process with threads is not safe.

    :param timeout: seconds after which a call is killed
    :param prepare: called first in the process, such as to import what the calls need
    :ivar pid: of the process
    """

    def __init__(self, timeout: float, prepare: Callable[[], object] = lambda: None) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self._control.close()
            _serve(theirs, prepare)
        theirs.close()

    def wait(self) -> None:
        """Wait for the end of the process."""
        os.waitpid(self.pid, 0)

    def close(self) -> None:
        """End the process and its children."""
        self._control.close()

    def call(self, function: Callable[[], T], lock: int) -> T:
        """Call a function in a process of its own, and kill that if it does not end in time.

        :param function: can be pickled, and so can its result
        :param lock: a file descriptor, whose lock lasts until the end of the process
        :raises HostHangs: the process was killed, and has not ended
        :raises HostError: the process was killed, or the function raised it
        """
        ours, theirs = Pipe()
        with ours:
            with theirs, self._lock:
                try:
                    socket.send_fds(self._control, [b"call"], [theirs.fileno(), lock])
                except OSError as error:
                    raise exception.HostError(
                        reason=f"The agent cannot start processes: {error}. Restart it."
                    ) from error
            timed_out = False
            try:
                pid = ours.recv()
                ours.send(function)
                timed_out = not ours.poll(self._timeout)
                if timed_out:
                    self._kill(pid, lock)
                failure, result = ours.recv()
            except (EOFError, ConnectionError) as ended:
                raise self._killed_error(timed_out=timed_out) from ended
        if failure is not None:
            raise failure
        value: T = result
        return value

    def _kill(self, pid: int, lock: int) -> None:
        """Kill a process and its commands, and wait until they end.

        :raises HostHangs: one has not ended; the lock lasts until it ends, or this process
        """
        LOG.warning("Process %d hangs in its work on a volume: it is killed", pid)
        deadline = time.monotonic() + KILL_TIMEOUT
        while members := _list_session(pid):
            if time.monotonic() > deadline:
                keep = threading.Thread(target=_keep_lock, args=(os.dup(lock), pid), daemon=True)
                keep.start()
                raise exception.HostHangs(pid=members[0], seconds=f"{self._timeout:g}")
            for member in members:
                _send_kill(member)
            time.sleep(_POLL_INTERVAL)

    def _killed_error(self, *, timed_out: bool) -> exception.HostError:
        if not timed_out:
            return exception.HostError(
                reason="The process for the work on the volume could not be started, or was "
                "killed, such as for lack of memory. The agent tries again; the log of the host "
                "has the reason."
            )
        return exception.HostError(
            reason=f"The work on the volume did not end within {self._timeout:g} s and was "
            "killed: a command of this host, such as iscsiadm or multipathd, or its kernel does "
            "not answer. Check its processes; the agent tries again."
        )


def _send_kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _keep_lock(lock: int, session: int) -> None:
    """Close the file of a lock when the last process of a session has ended."""
    while _list_session(session):
        time.sleep(_LOCK_INTERVAL)
    os.close(lock)


def _list_session(session: int) -> list[int]:
    """List the processes of a session: its commands may be in process groups of their own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, *numbers = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(numbers[2]) == session and state not in _ENDED:
                found.append(int(path.parent.name))
    return found


def _serve(control: socket.socket, prepare: Callable[[], object]) -> NoReturn:
    """Fork for each message, until the parent has ended."""
    code = 1
    try:
        # Its parent ends it, and the kernel reaps its children.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(exception.HostError):  # The calls raise it again.
            prepare()
        gc.freeze()  # Children share this memory.
        pid = os.getpid()
        while files := socket.recv_fds(control, 16, 2)[1]:
            try:
                child = os.fork()
            except OSError:
                LOG.exception("A process for the work on a volume cannot be started")
                child = -1
            if child == 0:
                control.close()
                _work(pid, Connection(files[0]))
            for file in files:
                os.close(file)
        code = 0
    except Exception:
        LOG.exception("The process that forks for the agent ends")
    finally:
        os._exit(code)


def _work(parent: int, connection: Connection) -> NoReturn:
    """Execute one call in a child."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:  # It may have ended before.
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            connection.send(os.getpid())
            connection.send(_outcome(connection.recv()))
    except Exception:
        LOG.exception("A process that works on a volume ends")
    finally:
        os._exit(0)


def _outcome(function: Callable[[], T]) -> tuple[exception.HostError | None, T | None]:
    try:
        return None, function()
    except exception.HostError as error:
        return error, None
    except Exception as error:
        LOG.exception("Unexpected error in the work on a volume")
        return exception.HostError(
            reason=f"Unexpected error in the agent: {type(error).__name__}. Its log has it."
        ), None

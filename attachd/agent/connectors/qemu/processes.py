# SPDX-License-Identifier: Apache-2.0
"""Processes of this host, by directory and command line; used by storage_daemon.py.

A process is not known by its number alone, which is reused.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import os
from pathlib import Path
import select
import signal

from attachd.linux import sandbox

_PROC = Path("/proc")
# Field 22; the first two are not counted, because the second may contain spaces.
_START_TIME = 22 - 3


@dataclasses.dataclass(frozen=True)
class Process:
    """One process.

    :ivar started: its start time in the kernel's ticks; execve() does not change it
    :ivar line: its command line; empty during an execve()
    """

    id: int
    started: int
    line: Sequence[str] = ()

    def wait(self, timeout: float) -> bool:
        """Wait for its end for some seconds; returns whether it has ended."""
        with self._pidfd() as pidfd:
            return pidfd is None or _has_ended(pidfd, timeout)

    def end(self, number: signal.Signals, timeout: float) -> bool:
        """Send it a signal and wait for its end; returns whether it has ended."""
        with self._pidfd() as pidfd:
            if pidfd is None:
                return True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)
            return _has_ended(pidfd, timeout)

    @contextlib.contextmanager
    def _pidfd(self) -> Iterator[int | None]:
        """Open a descriptor of exactly this process; None: it has ended."""
        try:
            pidfd = os.pidfd_open(self.id)
        except OSError:
            yield None
            return
        try:
            # From now on the number cannot be reused; before, it may have been.
            yield pidfd if _start_time(self.id) == self.started else None
        finally:
            os.close(pidfd)


def find(directory: Path, matches: Callable[[Sequence[str]], bool]) -> list[Process]:
    """List the processes of this user, or in a sandbox, that work in a directory.

    The command line of this user's has to match: a process during an execve() has none, and is
    listed.  One in a sandbox may have changed its own, but not its directory and user.  One that
    starts another process and ends may be missed by one scan; so a scan without result is
    repeated.

    Source: proc(5), cwd, cmdline, stat and status.
    """
    return _scan(directory, matches) or _scan(directory, matches)


def _scan(directory: Path, matches: Callable[[Sequence[str]], bool]) -> list[Process]:
    found = []
    for path in _PROC.iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                # A process that has ended has no working directory.
                folder, number = f"{(path / 'cwd').readlink()}", int(path.name)
                if folder != f"{directory}" and folder not in sandbox.TRANSIENT_DIRECTORIES:
                    continue
                process = Process(number, _start_time(number), _command_line(number))
                is_here, user = folder == f"{directory}", _user(number)
                if (is_here and user in sandbox.USERS) or (
                    user == os.getuid() and (matches(process.line) if process.line else is_here)
                ):
                    found.append(process)
    return found


def _user(number: int) -> int:
    """Return the real user id of a process, which a sandbox cannot change."""
    status = (_PROC / f"{number}" / "status").read_bytes()
    return int(status.partition(b"\nUid:")[2].split(maxsplit=1)[0])


def _command_line(number: int) -> Sequence[str]:
    line = (_PROC / f"{number}" / "cmdline").read_bytes()
    return tuple(os.fsdecode(line).split("\0")[:-1])


def _start_time(number: int) -> int:
    """Return the start time of a process; -1 if it has ended."""
    try:
        stat = (_PROC / f"{number}" / "stat").read_bytes()
    except OSError:
        return -1
    return int(stat.rpartition(b")")[2].split()[_START_TIME])


def _has_ended(pidfd: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout * 1000))

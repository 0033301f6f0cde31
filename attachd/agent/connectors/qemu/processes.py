# SPDX-License-Identifier: Apache-2.0
"""Processes of this host that are known by what they do, not by numbers that are reused.

For storage_daemon.py.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import os
from pathlib import Path
import select
import signal

_PROC = Path("/proc")
# Field 22, of which the first two are not counted, as the second may have spaces.
_STARTED = 22 - 3


@dataclasses.dataclass(frozen=True)
class Process:
    """One process.

    :ivar started: when, in the kernel's ticks; stays when it becomes another command
    :ivar line: its command line; empty while it becomes another command
    """

    id: int
    started: int
    line: Sequence[str] = ()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""
        with self._held() as handle:
            return handle is None or _ended(handle, seconds)

    def end(self, how: signal.Signals, seconds: float) -> bool:
        """Send it a signal and wait for its end; returns whether it has ended."""
        with self._held() as handle:
            if handle is None:
                return True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, how)
            return _ended(handle, seconds)

    @contextlib.contextmanager
    def _held(self) -> Iterator[int | None]:
        """Give a handle of the process that no other one can get; None: it has ended."""
        try:
            handle = os.pidfd_open(self.id)
        except OSError:
            yield None
            return
        try:
            # Only now the number is this handle's; it may have been another one's.
            yield handle if _started(self.id) == self.started else None
        finally:
            os.close(handle)


def find(folder: Path, wanted: Callable[[Sequence[str]], bool]) -> list[Process]:
    """List the processes that work in a folder and whose command lines are wanted.

    One that is just becoming another command has no line, and is listed.  One that starts
    another and ends may be missed while it does: so nobody is believed to be missing who was
    looked for once.

    Source: proc(5), cwd, cmdline and stat.
    """
    return _scan(folder, wanted) or _scan(folder, wanted)


def _scan(folder: Path, wanted: Callable[[Sequence[str]], bool]) -> list[Process]:
    found = []
    for each in _PROC.iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                # What has ended works nowhere.
                if (each / "cwd").readlink() == folder:
                    number = int(each.name)
                    found.append(Process(number, _started(number), _line(number)))
    return [each for each in found if not each.line or wanted(each.line)]


def _line(number: int) -> Sequence[str]:
    line = (_PROC / f"{number}" / "cmdline").read_bytes()
    return tuple(os.fsdecode(line).split("\0")[:-1])


def _started(number: int) -> int:
    """Return when a process has started; -1 if it is gone."""
    try:
        stat = (_PROC / f"{number}" / "stat").read_bytes()
    except OSError:
        return -1
    return int(stat.rpartition(b")")[2].split()[_STARTED])


def _ended(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))

# SPDX-License-Identifier: Apache-2.0
"""Processes of this host that are known by their command lines, not by numbers that are reused.

For daemons.py.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import os
from pathlib import Path
import select
import signal

_PROC = Path("/proc")


@dataclasses.dataclass(frozen=True)
class Process:
    """One process.

    :ivar line: its command line
    """

    id: int
    line: Sequence[str]

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
            yield handle if _same(line_of(self.id), self.line) else None
        finally:
            os.close(handle)


def find(wanted: Callable[[Sequence[str]], bool]) -> list[Process]:
    """List the processes whose command lines are wanted; one that has ended has none.

    One that starts another and ends, or becomes another, may be missed while it does: so nobody
    is believed to be missing who was looked for once.
    """
    return _scan(wanted) or _scan(wanted)


def line_of(number: int) -> Sequence[str]:
    """Return the command line of a process; empty if it has ended."""
    try:
        line = (_PROC / f"{number}" / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(line).split("\0")[:-1])


def _scan(wanted: Callable[[Sequence[str]], bool]) -> list[Process]:
    numbers = [int(each.name) for each in _PROC.iterdir() if each.name.isdigit()]
    found = [Process(number, line_of(number)) for number in numbers]
    return [each for each in found if each.line and wanted(each.line)]


def _same(now: Sequence[str], before: Sequence[str]) -> bool:
    # A command that starts others has their line behind its own, then becomes one of them.
    return bool(now) and tuple(before[-len(now) :]) == tuple(now)


def _ended(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))

# SPDX-License-Identifier: Apache-2.0
"""attachd-manager with a file driver that keeps a record of what it does; for test_takeover.

It is run as
``python -m attachd.tests.functional.recorded RECORD PAUSE GATE --config-file=...``.
Where the file GATE is, each change waits until it is removed.  Each line of the record says at
once, in one write: when (seconds of a clock of the machine), which process, which volume, and
what: a method that begins or ends, a change at the backend that is about to be made, or one that
is refused.
"""

from collections.abc import Callable, Iterator
import functools
import os
from pathlib import Path
import sys
import time
from typing import Any, NamedTuple

from attachd import exception
from attachd.cmd import manager
from attachd.drivers import fencing
from attachd.drivers.file import FileDriver
from attachd.tests.wait import wait_until

METHODS = ("create", "delete", "extend", "grant", "revoke")


class Entry(NamedTuple):
    """One line of a record."""

    at: float
    pid: int
    volume_id: str
    method: str
    what: str


def read(record: Path) -> list[Entry]:
    """Return what was recorded so far, in order."""
    lines = record.read_text(encoding="ascii").splitlines() if record.exists() else []
    fields = (line.split() for line in lines)
    return [Entry(float(at), int(pid), *rest) for at, pid, *rest in fields]


def overlaps(entries: list[Entry], died: dict[int, float]) -> Iterator[tuple[Entry, Entry]]:
    """Yield the pairs of works that were under way for one volume at the same time.

    :param died: when processes were killed: nothing of theirs is under way any more
    """
    under_way: dict[tuple[int, str], Entry] = {}
    for entry in entries:
        key = (entry.pid, entry.volume_id)
        if entry.what == "begins":
            for (pid, volume_id), other in under_way.items():
                if volume_id == entry.volume_id and entry.at < died.get(pid, entry.at + 1):
                    yield other, entry
            under_way[key] = entry
        elif entry.what == "ends":
            under_way.pop(key, None)


def main(record: str, pause: float, gate: str) -> int:
    """Run the manager.

    :param record: the file that is written to
    :param pause: seconds that each change takes before it is made
    :param gate: the file that each change waits for to be gone
    """
    file = os.open(record, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def note(volume_id: str, method: str, what: str) -> None:
        os.write(
            file, f"{time.monotonic():.6f} {os.getpid()} {volume_id} {method} {what}\n".encode()
        )

    for name in METHODS:
        _record(name, note, pause, Path(gate))
    return manager.main()


def _record(name: str, note: Callable[[str, str, str], None], pause: float, gate: Path) -> None:
    real = getattr(FileDriver, name)

    @functools.wraps(real)
    def recorded(self: FileDriver, volume: Any, *rest: Any) -> Any:
        note(volume.id, name, "begins")
        try:
            time.sleep(pause)  # what the caller wants a change to take
            wait_until(lambda: not gate.exists())
            try:
                fencing.check()
            except exception.BackendError:
                note(volume.id, name, "refused")
                raise
            note(volume.id, name, "changes")
            return real(self, volume, *rest)
        finally:
            note(volume.id, name, "ends")

    setattr(FileDriver, name, recorded)


if __name__ == "__main__":
    record, pause, gate, *sys.argv[1:] = sys.argv[1:]
    sys.exit(main(record, float(pause), gate))

# SPDX-License-Identifier: Apache-2.0
"""The tokens of reports, by which managers recognize a copy of the machine or of its journal.

The file is beside the entries of the journal, so that both are lost, copied and restored together.
"""

import contextlib
import json
import os
from pathlib import Path
from time import monotonic
from typing import Any, Final
import uuid

from attachd import exception, host_identity
from attachd.agent.journal import sync_directory
from attachd.rpc.agent_manager_api import ReportToken

INTERVAL: Final = 5.0
"""Seconds until a token is replaced at the earliest: that is a write to the disk."""
MAX_DELAYED: Final = 4
"""How many reports of the former start of a machine may arrive after it was started again."""
_FILE: Final = "report.token"
_MACHINE_IDS: Final = (Path("/sys/class/dmi/id/product_uuid"), Path("/etc/machine-id"))


class ReportTokens:
    """The tokens of one process of the agent; used by one thread, except for :meth:`store`.

    :param state_path: the directory of the host's state
    :param host: the name of the host
    :ivar process: a random name
    :raises HostError: the file cannot be read
    """

    def __init__(self, state_path: Path, host: str) -> None:
        self.process = uuid.uuid4().hex
        self._path = state_path / "attachments" / _FILE
        self._host = host
        stored = self._read()
        self._start = int(stored.get("start", 0)) + 1
        # Without "previous" there is no journal; here is one, though no report was accepted.
        following = stored.get("next")
        self._tokens = (stored.get("previous") or following, following or uuid.uuid4().hex)
        self._accepted: str | None = None
        self._stored_start = 0
        self._stored_at = 0.0
        self._number = 0
        self._is_repeated = self._has_rival = False
        self._others: set[str] = set()

    def _read(self) -> dict[str, Any]:
        """Return what is stored; {} if there is nothing, or if it is of another host."""
        try:
            stored = json.loads(self._path.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return {}
        except OSError as error:
            raise exception.HostError(
                reason=f"{self._path} cannot be read: {error.strerror}."
            ) from error
        return stored if stored.get("host") == self._host else {}

    def store(self) -> None:
        """Store the token of the next report: a new one if the last one was accepted.

        Without it the next report has the former one.  The first one of a process is needed.

        :raises HostError: the first one cannot be stored
        """
        start, tokens = self._start, self._tokens
        is_first = start != self._stored_start
        if not is_first:
            if tokens[1] != self._accepted or monotonic() - self._stored_at < INTERVAL:
                return
            tokens = (tokens[1], uuid.uuid4().hex)
        try:
            self._write({"previous": tokens[0], "next": tokens[1], "start": start})
        except OSError as error:
            if is_first:
                raise exception.HostError(
                    reason=f"{self._path} cannot be written: {error.strerror}. Without it a "
                    "report could be that of a copy of this machine."
                ) from error
            return
        self._stored_start, self._stored_at = start, monotonic()
        self._tokens = tokens

    def _write(self, values: dict[str, Any]) -> None:
        for directory in (self._path.parents[1], self._path.parent):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        file = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as output:
            json.dump({"host": self._host, **values}, output)
            output.flush()
            os.fsync(output.fileno())
        new.rename(self._path)
        sync_directory(self._path.parent)

    def is_stored(self) -> bool:
        """Return whether a report may be sent."""
        return self._start == self._stored_start

    def take(self) -> ReportToken:
        """Return what the next report says about its sender."""
        self._number += 1
        previous, following = self._tokens
        return {
            "process": self.process,
            "start": self._start,
            "number": self._number,
            "previous": previous,
            "next": following,
            "is_repeated": self._is_repeated,
            "has_rival": self._has_rival,
            "is_known": self._accepted is not None,
        }

    def record_accepted(self, token: ReportToken) -> None:
        """Record that a report was accepted."""
        self._accepted = token["next"]
        self._is_repeated = False
        self._others.clear()

    def record_old(self, start: int) -> None:
        """Record the answer that the last report is older than an accepted one.

        :param start: of the accepted one
        """
        self._start = max(self._start, start) + 1
        self._is_repeated = True
        self._has_rival = self._has_rival or self._accepted is not None

    def record_early(self, report: str) -> None:
        """Record the answer that this machine can hardly have been started again.

        :param report: stands for the last one of its former start; some that were delayed may
            still arrive
        """
        self._others.add(report)
        self._has_rival = len(self._others) > MAX_DELAYED


def read_machine_id() -> str | None:
    """Return the id of this machine, by firmware or operating system; None: it has none."""
    for path in _MACHINE_IDS:
        with contextlib.suppress(OSError, ValueError):
            found = host_identity.identifier("machine", path.read_text(encoding="ascii"))
            if found:
                return host_identity.value(found)[:64]
    return None

# SPDX-License-Identifier: Apache-2.0
"""The calls of clients for each volume and their results, recorded during the run, and checked
at the end; for clients.py and run.py.
"""

from collections import defaultdict
from collections.abc import Iterable
import threading
from typing import Any, NamedTuple

from attachd.tests.soak import linearizability, volume_model
from attachd.tests.soak.linearizability import Operation

MOST_VISITED = 3_000_000
"""Situations of one volume after which the search is given up."""

_SHOWN = 12


class Success(NamedTuple):
    """A call that changed something and was answered so; moments are of time.monotonic()."""

    verb: str
    invoked: float
    answered: float


class _Seen(NamedTuple):
    """A POST whose effect is not at one moment: which attachments it made is known at the end."""

    server: str
    connects: bool


class History:
    """A thread-safe record of calls.

    :ivar successes: in the order in which they were answered
    :ivar outcomes: number of calls by kind and result: (verb, outcome)
    :ivar violations: sentences about violations
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_volume: dict[str, list[Operation]] = defaultdict(list)
        self._ids: dict[str, set[str]] = defaultdict(set)
        self.successes: list[Success] = []
        self.outcomes: dict[tuple[str, str], int] = defaultdict(int)
        self.violations: list[str] = []

    def note(self, volume: str, invoked: float, answered: float, what: Any) -> None:
        """Record an operation of a volume; see volume_model."""
        with self._lock:
            self._by_volume[volume].append(Operation(invoked, answered, what))

    def note_post(self, volume: str, moment: float, server: str, *, connects: bool) -> None:
        """Note that a POST was sent whose effect may be anywhere, or nowhere, after that."""
        self.note(volume, moment, moment, _Seen(server, connects))

    def note_seen(self, server: str, attachment_id: str) -> None:
        """Record that a client saw a server's attachment."""
        with self._lock:
            self._ids[server].add(attachment_id)

    def note_success(self, verb: str, invoked: float, answered: float) -> None:
        """Record a call that changed something and succeeded."""
        with self._lock:
            self.successes.append(Success(verb, invoked, answered))

    def count(self, verb: str, outcome: str) -> None:
        """Count a call, or one try of it."""
        with self._lock:
            self.outcomes[verb, outcome] += 1

    def violation(self, sentence: str) -> None:
        """Record a violation."""
        with self._lock:
            self.violations.append(sentence)

    def size(self) -> int:
        """Return the number of recorded operations."""
        return sum(map(len, self._by_volume.values()))

    def judge(self, shared: Iterable[str]) -> list[str]:
        """Return a sentence about each volume whose history is not linearizable.

        :param shared: ids of the volumes that several may attach
        """
        several = frozenset(shared)
        result = []
        for volume, noted in self._by_volume.items():
            operations = [self._known(item) for item in noted]
            model = volume_model.Volume(shared=volume in several)
            initial = volume_model.State()
            found = linearizability.check(operations, initial, model.step, MOST_VISITED)
            if not found.linearizable:
                result.append(_explain(volume, len(operations), found))
        return result

    def _known(self, operation: Operation) -> Operation:
        what = operation.what
        if not isinstance(what, _Seen):
            return operation
        ids = frozenset(self._ids[what.server])
        return operation._replace(what=volume_model.Posted(what.server, what.connects, ids))


def _explain(volume: str, size: int, found: linearizability.Verdict[volume_model.State]) -> str:
    said = "is not linearizable" if found.linearizable is False else "was too long to be judged"
    lines = [f"the history of volume {volume} {said}: {len(found.order)} of {size} operations"]
    lines += [f"  done: {_shown(item)}" for item in found.order[-_SHOWN:]]
    lines += [f"  then it is {found.state}"]
    lines += [f"  cannot be next: {_shown(item)}" for item in found.stuck[:_SHOWN]]
    return "\n".join(lines)


def _shown(operation: Operation) -> str:
    return f"[{operation.invoked:.3f}, {operation.answered:.3f}] {operation.what}"

# SPDX-License-Identifier: Apache-2.0
"""The phases of an attachment, their names for clients, and the transitions of each call; for
volume_model.py.

Nothing here is read from the service's own table of states.
"""

from collections.abc import Iterable, Mapping
import enum
import functools


class Phase(enum.StrEnum):
    """The phase of an attachment; clients see :data:`WORDS`."""

    RESERVED = "reserved"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ATTACHED = "attached"
    FAILED = "failed"
    """Surely without access: the volume is free again."""
    DOUBTFUL = "doubtful"
    LEAVING = "leaving"
    STUCK = "stuck"
    GONE = "gone"


_P = Phase

WORDS: Mapping[Phase, str] = {
    _P.RESERVED: "reserved",
    _P.CONNECTING: "attaching",
    _P.CONNECTED: "attaching",
    _P.ATTACHED: "attached",
    _P.FAILED: "error_attaching",
    _P.DOUBTFUL: "error_attaching",
    _P.LEAVING: "detaching",
    _P.STUCK: "error_detaching",
}

PRESENT = frozenset(WORDS)
HOLDING = PRESENT - {_P.FAILED}
UNCERTAIN = frozenset({_P.DOUBTFUL, _P.STUCK})

MOVES: Mapping[str, Mapping[Phase, frozenset[Phase]]] = {
    "connect": {
        _P.RESERVED: frozenset({_P.CONNECTING}),
        _P.CONNECTING: frozenset({_P.CONNECTED, _P.FAILED, _P.DOUBTFUL}),
        _P.FAILED: frozenset({_P.CONNECTING}),
        _P.DOUBTFUL: frozenset({_P.CONNECTING, _P.FAILED}),
    },
    # A POST that could not connect gives its reservation up.
    "give up": {_P.RESERVED: frozenset({_P.GONE})},
    "complete": {
        _P.RESERVED: frozenset({_P.ATTACHED}),
        _P.CONNECTED: frozenset({_P.ATTACHED}),
    },
    "delete": {
        **dict.fromkeys(PRESENT, frozenset({_P.LEAVING})),
        _P.RESERVED: frozenset({_P.LEAVING, _P.GONE}),
        _P.LEAVING: frozenset({_P.GONE, _P.STUCK}),
    },
}

BY_POST = frozenset({"connect", "give up"})
"""What a POST with a connector does besides reserving."""


def phases_of(word: str) -> frozenset[Phase]:
    """Return the phases that clients see as one status."""
    return frozenset(phase for phase, item in WORDS.items() if item == word)


def status(phases: Iterable[Phase]) -> str:
    """Return the status of a volume with attachments in these phases."""
    existing = frozenset(phases)
    certain = {WORDS[phase] for phase in existing & PRESENT - UNCERTAIN - {_P.FAILED}}
    for word, shown in (
        ("attached", "in-use"),
        ("attaching", "attaching"),
        ("detaching", "detaching"),
        ("reserved", "reserved"),
    ):
        if word in certain:
            return shown
    return "error" if existing & UNCERTAIN else "available"


@functools.cache
def reach(phase: Phase, sent: frozenset[str]) -> tuple[Phase, ...]:
    """Return where an attachment may be by itself; what takes the fewest moves comes first."""
    found = {phase: None}
    for item in (ahead := [phase]):
        for verb in sorted(sent):
            for following in sorted(MOVES[verb].get(item, ())):
                if following not in found:
                    found[following] = None
                    ahead.append(following)
    return tuple(found)

# SPDX-License-Identifier: Apache-2.0
"""What is a difference between database and backend, where it comes from and what helps.

Read by audit.py, which looks for them, and by whoever wants to know what one means.  Nothing is
asked of anybody here, but the driver's plain functions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import enum
from types import MappingProxyType
from typing import NamedTuple

from attachd.drivers.base import AccessMode, BackendExport, Driver, Export, VolumeRef


class Kind(enum.StrEnum):
    """What sort of difference it is; for programs, and an anchor in the documentation."""

    LEFTOVER_EXPORT = "leftover-export"
    WRONG_MODE = "wrong-mode"
    EXTRA_HOST = "extra-host"
    EXTRA_PART = "extra-part"
    SESSION = "session"
    MISSING_EXPORT = "missing-export"
    STATUS = "status"
    HALF_WAY = "half-way"
    VOLUME_WITHOUT_DATA = "volume-without-data"
    DATA_WITHOUT_VOLUME = "data-without-volume"
    SIZE = "size"
    ELSEWHERE = "elsewhere"
    UNPLACED = "unplaced"
    MISSING_DEVICE = "missing-device"
    LEFTOVER_DEVICE = "leftover-device"


class Meaning(NamedTuple):
    """What one sort of difference means.

    :ivar cause: where it usually comes from
    :ivar action: what is safe to do about it
    :ivar safe: whether an audit may do it by itself
    """

    cause: str
    action: str
    safe: bool


MEANINGS: Mapping[Kind, Meaning] = MappingProxyType(
    {
        Kind.LEFTOVER_EXPORT: Meaning(
            "No attachment wants this export: its row was removed behind the manager's back, or "
            "the export was made by hand.",
            "Revoke it.",
            safe=True,
        ),
        Kind.WRONG_MODE: Meaning(
            "The attachment says another mode than the one its host was let in with.",
            "Revoke it in this mode, and grant it in the one of the attachment.",
            safe=True,
        ),
        Kind.EXTRA_HOST: Meaning(
            "A host may get in that has no attachment: its row was removed behind the manager's "
            "back, or the host was added by hand.",
            "Shut the host out, and end its sessions.",
            safe=True,
        ),
        Kind.EXTRA_PART: Meaning(
            "Something was made for a host that has no attachment, such as a CHAP account.",
            "Remove it.",
            safe=True,
        ),
        Kind.SESSION: Meaning(
            "A host is in that may not get in any more.",
            "End its session.",
            safe=True,
        ),
        Kind.MISSING_EXPORT: Meaning(
            "The backend has lost it: it was restarted, or somebody removed it by hand.",
            "Grant it again.",
            safe=True,
        ),
        Kind.STATUS: Meaning(
            "Somebody has changed the row, or those of its attachments, with SQL.",
            "Store what follows from the volume's own state and its attachments.",
            safe=True,
        ),
        Kind.HALF_WAY: Meaning(
            "Whoever worked on it has died.",
            "None: a running manager of this backend finishes or undoes it. Is there one?",
            safe=False,
        ),
        Kind.VOLUME_WITHOUT_DATA: Meaning(
            "The backend does not have the data of this volume: it was removed there, or the "
            "backend's storage is not mounted.",
            "Look for the data before anything else. Nothing is done here.",
            safe=False,
        ),
        Kind.DATA_WITHOUT_VOLUME: Meaning(
            "The backend has data of a volume that the database does not know: its row was "
            "removed behind the manager's back, or this is not the database it belongs to.",
            "Find out whose it is. Data is never removed here.",
            safe=False,
        ),
        Kind.SIZE: Meaning(
            "The volume was resized behind the manager's back.",
            "Find out which size is right: extend the volume, or correct its row.",
            safe=False,
        ),
        Kind.ELSEWHERE: Meaning(
            "The database says that this volume is at another backend.",
            "Find out which of them is right. Nothing is done here.",
            safe=False,
        ),
        Kind.UNPLACED: Meaning(
            "It was left by whoever died while a host was let in or shut out, and its row is "
            "gone.",
            "",
            safe=False,
        ),
        Kind.MISSING_DEVICE: Meaning(
            "The host has lost the device, and its agent could not make it again.",
            "None: the agent tries with each report. Look at its error, and at its log.",
            safe=False,
        ),
        Kind.LEFTOVER_DEVICE: Meaning(
            "The attachment was deleted by force, and the agent could not take the device away.",
            "None: the agent tries with each report. Find out who uses the device there.",
            safe=False,
        ),
    }
)


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that database and backend do not agree about.

    :ivar backend: ``host@backend``
    :ivar volume_id: "" where it is of no volume that could be told
    :ivar found: what it is, in one sentence
    :ivar action: what is safe to do about it
    :ivar outcome: what was done: "" nothing was tried, REPAIRED, or why it could not be
    """

    kind: Kind
    backend: str
    volume_id: str
    found: str
    action: str
    outcome: str = ""

    @property
    def cause(self) -> str:
        """Where it usually comes from."""
        return MEANINGS[self.kind].cause


REPAIRED = "repaired"

Found = tuple[Kind, str]


@dataclasses.dataclass(frozen=True)
class Sides:
    """What database and backend have of a volume's exports.

    :ivar certain: what the rows say that hosts reach
    :ivar doubtful: what they may reach: somebody is at it, or an error has left it open
    :ivar exported: what the backend has
    """

    volume: VolumeRef
    certain: Sequence[Export]
    doubtful: Sequence[Export]
    exported: Sequence[BackendExport]

    @property
    def staying(self) -> list[Export]:
        """What must not be taken away."""
        return [*self.certain, *self.doubtful]


def excess(driver: Driver, sides: Sides) -> Iterator[Found]:
    """Find what the backend has and no row wants."""
    allowed = _by_mode(driver.expected_exports(sides.volume, sides.staying))
    for each in sides.exported:
        wanted = allowed.get(each.mode)
        elsewhere = {who for mode in allowed.values() for who in mode.holders}
        if wanted is None:
            moved = each.holders and each.holders <= elsewhere
            yield (Kind.WRONG_MODE if moved else Kind.LEFTOVER_EXPORT), _described(each)
            continue
        for who in sorted(each.holders - wanted.holders):
            kind = Kind.WRONG_MODE if who in elsewhere else Kind.EXTRA_HOST
            yield kind, f"{who} may get in{_in(each.mode)}."
        for part in sorted(each.parts - wanted.parts):
            yield Kind.EXTRA_PART, f"There is {part}{_in(each.mode)}."
        for who in sorted(each.sessions - each.holders):
            yield Kind.SESSION, f"{who} is logged in{_in(each.mode)}."


def lacking(driver: Driver, sides: Sides) -> Iterator[tuple[Export, Found]]:
    """Find what the rows want and the backend does not have, with whom it is to be granted to."""
    there = _by_mode(sides.exported)
    for export in sides.certain:
        missing = []
        for wanted in driver.expected_exports(sides.volume, [export]):
            has = there.get(wanted.mode, BackendExport(sides.volume.id, wanted.mode))
            missing += [f"{who} cannot get in{_in(wanted.mode)}"
                        for who in sorted(wanted.holders - has.holders)]  # fmt: skip
            missing += [f"there is no {part.removeprefix('the ')}{_in(wanted.mode)}"
                        for part in sorted(wanted.parts - has.parts)]  # fmt: skip
        if missing:
            found = f"Of attachment {export.attachment_id}: {', '.join(missing)}."
            yield export, (Kind.MISSING_EXPORT, found)


def _by_mode(exported: Iterable[BackendExport]) -> dict[AccessMode | None, BackendExport]:
    return {each.mode: each for each in exported}


def _in(mode: AccessMode | None) -> str:
    return f" ({mode})" if mode else ""


def _described(each: BackendExport) -> str:
    names = [
        *(f"{who} may get in" for who in sorted(each.holders)),
        *(f"there is {part}" for part in sorted(each.parts)),
        *(f"{who} is logged in" for who in sorted(each.sessions)),
    ]
    return f"It is exported{_in(each.mode)}: {', '.join(names) or 'to nobody'}."

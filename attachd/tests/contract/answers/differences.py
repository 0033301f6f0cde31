# SPDX-License-Identifier: Apache-2.0
"""Find the differences between two answers, and which are known; for the test and the command.

known_differences.yaml is a list.  An entry says in ``requests`` which requests and in ``at``
which places of their answers it speaks of (patterns, ``*`` stands for anything), and why they
differ in ``because``; ``attachd``, if it is there, is what attachd has to answer at that place.
Each entry has to be needed: what it speaks of has to be there, pattern by pattern.

not_built_yet.yaml lists requests, by the feature that they wait for.
"""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import fnmatch
import itertools
import json
from pathlib import Path
from typing import Any

import yaml

from attachd.tests.contract.answers.normal import Normal

FOLDER = Path(__file__).parent
ABSENT = "<absent>"
USUAL = "<as usual>"


@dataclasses.dataclass(frozen=True)
class Difference:
    """One place of one answer."""

    request: str
    place: str
    cinder: Any
    attachd: Any

    def __str__(self) -> str:
        """Return it as a line, for people."""
        theirs, ours = (json.dumps(item)[:300] for item in (self.cinder, self.attachd))
        return f"{self.request}  {self.place}\n    cinder:  {theirs}\n    attachd: {ours}"


def between(request: str, theirs: Normal, ours: Normal) -> list[Difference]:
    """Return the differences.  If the status differs, the rest is not compared."""
    if theirs["status"] != ours["status"]:
        return [Difference(request, "status", theirs["status"], ours["status"])]
    walked = itertools.chain(
        _walk("headers", theirs.get("headers", {}), ours.get("headers", {}), USUAL),
        _walk("body", theirs.get("body", ABSENT), ours.get("body", ABSENT)),
    )
    return [Difference(request, *item) for item in walked]


def _walk(
    place: str, theirs: Any, ours: Any, lacking: str = ABSENT
) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            pair = theirs.get(key, lacking), ours.get(key, lacking)
            yield from _walk(f"{place}.{key}", *pair)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from _walk(f"{place}.{number}", *pair)
    elif json.dumps(theirs) != json.dumps(ours):
        yield place, theirs, ours


@dataclasses.dataclass
class _Entry:
    """One entry of the list, and the differences that it has explained."""

    requests: list[str]
    places: list[str]
    content: Mapping[str, Any]
    needed: set[str] = dataclasses.field(default_factory=set)

    def explains(self, difference: Difference) -> bool:
        if "attachd" in self.content and self.content["attachd"] != difference.attachd:
            return False
        requests = [
            request for request in self.requests if fnmatch.fnmatch(difference.request, request)
        ]
        places = [place for place in self.places if fnmatch.fnmatch(difference.place, place)]
        if not (requests and places):
            return False
        self.needed |= {*requests, *places}
        return True

    def unneeded(self) -> list[str]:
        return [item for item in (*self.requests, *self.places) if item not in self.needed]


class Known:
    """The differences that are known."""

    def __init__(self, folder: Path = FOLDER) -> None:
        listed = yaml.safe_load((folder / "known_differences.yaml").read_text(encoding="utf-8"))
        self._entries = [
            _Entry(_many(item["requests"]), _many(item["at"]), item) for item in listed
        ]
        waiting = yaml.safe_load((folder / "not_built_yet.yaml").read_text(encoding="utf-8"))
        self._waiting = [item for several in (waiting or {}).values() for item in several]

    @property
    def unexplained(self) -> list[str]:
        """Entries without a reason."""
        return [
            f"{entry.requests} {entry.places}"
            for entry in self._entries
            if not str(entry.content.get("because", "")).strip()
        ]

    def waits(self, request: str) -> bool:
        """Whether the request is of a feature that is not built yet."""
        return any(fnmatch.fnmatch(request, item) for item in self._waiting)

    def unknown(self, differences: Iterable[Difference]) -> list[Difference]:
        """Return those that no entry explains, and record which entries were needed."""
        found = []
        for difference in differences:
            explained = [entry for entry in self._entries if entry.explains(difference)]
            if not explained and not self.waits(difference.request):
                found.append(difference)
        return found

    def unneeded(self) -> list[str]:
        """Return the entries without a difference."""
        return [
            f"{pattern}, of the entry {entry.requests} {entry.places}"
            for entry in self._entries
            for pattern in entry.unneeded()
        ]


def _many(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]

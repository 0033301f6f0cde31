# SPDX-License-Identifier: Apache-2.0
"""Parser of tgtadm's listings of targets and sessions, for client.py.

The listing repeats, verbatim, the alias that a logged-in host chose for itself, including line
breaks.  So a host could add lines of its own.  It cannot remove the true ones: a value that
appears twice is a forgery or an error, and then none of them is used.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
import re

from attachd import exception

_TARGET = re.compile(r"^Target (\d+): (.*)$", re.MULTILINE)
_LOGGED_IN = re.compile(r"^ +Initiator: (\S+)")
_SECTION_INDENT = 4
_ITEM_INDENT = 8
_SESSION = re.compile(
    r"^Session: (?P<sid>\d+)$"
    r"|^ +Connection: (?P<cid>\d+)$"
    r"|^ +Initiator: (?P<initiator>\S+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Lun:
    """A logical unit.

    :ivar size_mb: rounded, in 10**6 bytes: tgtd shows no more
    :ivar discards: whether it takes commands that free blocks
    """

    scsi_id: str
    path: str
    size_mb: int
    online: bool
    read_only: bool
    discards: bool = False


@dataclass(frozen=True)
class Target:
    """A target.

    :ivar ready: whether it accepts logins and commands
    :ivar accounts: CHAP users, in the order of their places in tgtd
    :ivar initiators: the names that may log in
    :ivar sessions: the names that are logged in
    """

    tid: int
    name: str
    ready: bool
    luns: dict[int, Lun]
    accounts: tuple[str, ...]
    initiators: tuple[str, ...]
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Connection:
    """One connection of a session of a host."""

    sid: int
    cid: int
    initiator: str


def targets(listing: str) -> Iterator[Target]:
    """Parse all targets of a listing."""
    for tid, name, block in _blocks(listing):
        yield _target(tid, name, block)


def named(listing: str, names: Collection[str]) -> list[Target]:
    """Parse the targets of some names; the others are skipped."""
    return [_target(*block) for block in _blocks(listing) if block[1] in names]


def of_volume(listing: str, name: str) -> list[Target]:
    """Parse the targets whose name is that of a volume's target, or continues it by a suffix."""
    suffixed = f"{name}-"
    return [
        _target(*block)
        for block in _blocks(listing)
        if block[1] == name or block[1].startswith(suffixed)
    ]


def connections(listing: str) -> list[Connection]:
    """Parse the connections of one target."""
    found = []
    sid = cid = 0
    for match in _SESSION.finditer(listing):
        if match["sid"]:
            sid = int(match["sid"])
        elif match["cid"]:
            cid = int(match["cid"])
        else:
            found.append(Connection(sid, cid, match["initiator"]))
    return found


def accounts(listing: str) -> list[str]:
    """Parse the list of all CHAP users."""
    return [line.strip() for line in listing.splitlines() if line.startswith(" ")]


def _blocks(listing: str) -> list[tuple[int, str, str]]:
    """Split a listing into (tid, name, lines)."""
    headers = list(_TARGET.finditer(listing))
    _once(header[1] for header in headers)
    _once(header[2] for header in headers)
    bounds = [header.start() for header in headers] + [len(listing)]
    return [
        (int(header[1]), header[2], listing[header.end() : end])
        for header, end in zip(headers, bounds[1:], strict=True)
    ]


def _target(tid: int, name: str, block: str) -> Target:
    sections = _sections(block)
    return Target(
        tid=tid,
        name=name,
        ready="        State: ready" in sections.get("System information:", []),
        luns=_luns(sections.get("LUN information:", [])),
        accounts=tuple(map(str.strip, sections.get("Account information:", []))),
        initiators=tuple(map(str.strip, sections.get("ACL information:", []))),
        sessions=tuple(
            found[1]
            for found in map(_LOGGED_IN.match, sections.get("I_T nexus information:", []))
            if found
        ),
    )


def _sections(block: str) -> dict[str, list[str]]:
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if indent == _SECTION_INDENT:
            found.append((line.strip(), []))
        elif indent >= _ITEM_INDENT and found:
            found[-1][1].append(line)
    _once(title for title, lines in found)
    return dict(found)


def _luns(lines: list[str]) -> dict[int, Lun]:
    found: dict[int, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in lines:
        key, _, value = line.strip().partition(": ")
        if key == "LUN":
            fields = found.setdefault(int(value), {})
        else:
            fields[key] = value
    return {number: _lun(fields) for number, fields in found.items()}


def _lun(fields: dict[str, str]) -> Lun:
    return Lun(
        scsi_id=fields.get("SCSI ID", ""),
        path=fields.get("Backing store path", ""),
        size_mb=int(fields.get("Size", "0").split()[0]),
        online=fields.get("Online") == "Yes",
        read_only=fields.get("Readonly") == "Yes",
        discards=fields.get("Thin-provisioning") == "Yes",
    )


def _once(names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise exception.BackendError(
                f"tgtd shows {name!r} twice: a host may have forged it through its alias. "
                "List the sessions with tgtadm and end the forged one."
            )
        seen.add(name)

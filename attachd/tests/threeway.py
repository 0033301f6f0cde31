# SPDX-License-Identifier: Apache-2.0
"""Whether database and backend say the same; for tests that break things and look at what is left.

Rows are read with SQL, targets, ACLs, accounts and sessions with tgtadm, links and files from
their folders: nothing here goes through a driver or through the manager.  Each function returns a
list of sentences, one for each difference, and an empty list where all is well::

    left = threeway.settled(lambda: threeway.of_tgt(deployment.database, self.tgtd))
    self.assertEqual([], left)

What a row in a state of doubt (connecting, disconnecting, connect_unknown, disconnect_failed) has
at the backend may be there or not; :func:`unfinished` tells of the rows that are half-way.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import dataclasses
import functools
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from attachd import states
from attachd.db import models
from attachd.drivers.tgt import names, parser
from attachd.states import AttachmentState, VolumeState
from attachd.tests.functional.tgtd import Tgtd
from attachd.tests.wait import TIMEOUT, poll

Row = Mapping[str, Any]

IQN_PREFIX = "iqn.2026-01.internal.attachd:volume-"
"""What the driver's option tgt_iqn_prefix says where nobody sets it."""

_HALF_WAY = frozenset({AttachmentState.CONNECTING, AttachmentState.DISCONNECTING})
_GOING = frozenset({VolumeState.CREATING, VolumeState.DELETING, VolumeState.EXTENDING})
_MAYBE_WITHOUT_DATA = frozenset(
    {
        VolumeState.CREATING,
        VolumeState.DELETING,
        VolumeState.ERROR,
        VolumeState.ERROR_DELETING,
    }
)


def settled(look: Callable[[], list[str]], seconds: float = TIMEOUT) -> list[str]:
    """Look again and again until there is no difference; return the last ones, if time is up."""
    return poll(look, lambda found: not found, timeout=seconds, interval=0.1)


def of_tgt(
    database: str, tgtd: Tgtd, prefix: str = IQN_PREFIX, backend: str | None = None
) -> list[str]:
    """Compare rows with targets, units, ACLs, CHAP accounts, sessions and files of a tgtd.

    :param database: its URL
    :param prefix: the driver's tgt_iqn_prefix
    :param backend: ``host@backend``, where the database has volumes of other backends as well
    """
    volumes, attachments = _read(database, backend)
    wanted = _wanted(volumes, attachments, prefix)
    shown = {target.name: target for target in tgtd.targets()}
    return [
        *_wrong_targets(wanted, shown),
        *_wrong_accounts(wanted, tgtd.accounts()),
        *_wrong_sessions(wanted, shown.values(), tgtd),
        *_wrong_files(volumes, Path(tgtd.options["tgt_volumes_dir"])),
        *_wrong_status(volumes, attachments),
    ]


def of_files(database: str, folder: Path, backend: str | None = None) -> list[str]:
    """Compare rows with the links and files of a file driver.

    :param database: its URL
    :param folder: the driver's file_folder
    :param backend: see :func:`of_tgt`
    """
    volumes, attachments = _read(database, backend)
    known = {row["id"]: row for row in attachments if row["connector"] is not None}
    must = {each for each, row in known.items() if row["state"] in states.WITH_ACCESS}
    may = {each for each, row in known.items() if row["state"] not in states.INACTIVE}
    links = {link.name: link for link in (folder / "exports").glob("*/*")}
    found = [f"attachment {each} has no link" for each in sorted(must - links.keys())]
    found += [f"link {links[each]} has no attachment" for each in sorted(links.keys() - may)]
    for each in sorted(must & links.keys()):
        link, volume_id = links[each], known[each]["volume_id"]
        file = folder / "volumes" / volume_id
        if link.parent.name != volume_id or not (file.exists() and link.samefile(file)):
            found.append(f"link {link} is not of volume {volume_id}")
    return [
        *found,
        *_wrong_files(volumes, folder / "volumes"),
        *_wrong_status(volumes, attachments),
    ]


def unfinished(database: str, backend: str | None = None) -> list[str]:
    """Tell of the rows that are half-way: somebody has to be at work on each, or else come."""
    volumes, attachments = _read(database, backend)
    return [
        *(
            f"volume {each} is {row['state']}"
            for each, row in volumes.items()
            if row["state"] in _GOING
        ),
        *(
            f"attachment {row['id']} is {row['state']}"
            for row in attachments
            if row["state"] in _HALF_WAY
        ),
    ]


@dataclasses.dataclass
class _Wanted:
    """A target as the rows want it.

    :ivar must: initiators that have to be let in, and their accounts
    :ivar may: initiators that may be let in as well, and their accounts
    """

    volume: Row
    must: dict[str, str] = dataclasses.field(default_factory=dict)
    may: dict[str, str] = dataclasses.field(default_factory=dict)


def _read(database: str, backend: str | None) -> tuple[dict[str, Row], list[Row]]:
    where = sa.true() if backend is None else models.on_backend(backend)
    with _engine(database).connect() as connection:
        volumes = connection.execute(sa.select(models.volumes).where(where)).mappings().all()
        rows = connection.execute(sa.select(models.attachments)).mappings().all()
    known: dict[str, Row] = {row["id"]: dict(row) for row in volumes}
    return known, [dict(row) for row in rows if row["volume_id"] in known]


@functools.cache
def _engine(database: str) -> sa.Engine:
    """Make an engine once: the first connection of each asks the server a lot."""
    return sa.create_engine(database, poolclass=sa.NullPool)


def _wanted(
    volumes: Mapping[str, Row], attachments: Iterable[Row], prefix: str
) -> dict[str, _Wanted]:
    found: dict[str, _Wanted] = {}
    for row in attachments:
        initiator = (row["connector"] or {}).get("initiator")
        if not initiator or row["state"] in states.INACTIVE:
            continue
        volume = volumes[row["volume_id"]]
        for mode, suffix in (("rw", ""), ("ro", "-ro")):
            name = f"{prefix}{volume['id']}{suffix}"
            target = found.setdefault(name, _Wanted(volume))
            if row["state"] in states.WITH_ACCESS and mode == (row["mode"] or "rw"):
                target.must[initiator] = _told_account(row, name)
            elif row["state"] not in states.WITH_ACCESS:
                target.may[initiator] = names.account(name, initiator)
    return {name: target for name, target in found.items() if target.must or target.may}


def _told_account(row: Row, name: str) -> str:
    """Return the account that the host was told, of the target that it was told."""
    told = row["connection_info"]["data"]
    return str(told["auth_username"]) if told["target_iqn"] == name else f"none: {told}"


def _wrong_targets(
    wanted: Mapping[str, _Wanted], shown: Mapping[str, parser.Target]
) -> Iterator[str]:
    for name in sorted(shown.keys() - wanted.keys()):
        yield f"target {name} has no attachment"
    for name, target in sorted(wanted.items()):
        if name in shown:
            yield from _wrong_target(target, shown[name])
        elif target.must:
            yield f"target {name} is missing for {sorted(target.must)}"


def _wrong_target(wanted: _Wanted, shown: parser.Target) -> Iterator[str]:
    bound = {user for user in shown.accounts if not user.startswith("attachd-sentinel")}
    if bound == set(shown.accounts):
        yield f"target {shown.name} is not guarded"
    yield from _wrong_set(
        f"target {shown.name}: initiator", wanted.must, wanted.may, shown.initiators
    )
    yield from _wrong_set(
        f"target {shown.name}: account", wanted.must.values(), wanted.may.values(), bound
    )
    unit = shown.luns.get(1)
    if not wanted.must:
        return  # Whoever made it may have died before it was complete.
    if unit is None or not (shown.ready and unit.online):
        yield f"target {shown.name} is not in service"
        return
    if unit.read_only != shown.name.endswith("-ro"):
        yield f"target {shown.name} shows its unit in another mode"
    if Path(unit.path).name != wanted.volume["id"]:
        yield f"target {shown.name} shows {unit.path}"
    if abs(unit.size_mb * 10**6 - wanted.volume["size_gib"] * 2**30) > 10**6:
        yield f"target {shown.name} shows {unit.size_mb} MB"


def _wrong_accounts(wanted: Mapping[str, _Wanted], accounts: Iterable[str]) -> Iterator[str]:
    must = [user for target in wanted.values() for user in target.must.values()]
    may = [user for target in wanted.values() for user in target.may.values()]
    yield from _wrong_set("account", must, may, accounts)


def _wrong_sessions(
    wanted: Mapping[str, _Wanted], shown: Iterable[parser.Target], tgtd: Tgtd
) -> Iterator[str]:
    for target in shown:
        listing = tgtd.adm("--op", "show", "--mode", "conn", "--tid", f"{target.tid}")
        rows = wanted.get(target.name)
        allowed = {*rows.must, *rows.may} if rows else set()
        for connection in parser.connections(listing):
            if connection.initiator not in allowed:
                yield f"target {target.name}: session of {connection.initiator}"


def _wrong_set(
    what: str, must: Iterable[str], may: Iterable[str], there: Iterable[str]
) -> Iterator[str]:
    needed, seen = set(must), set(there)
    for each in sorted(needed - seen):
        yield f"{what} {each} is missing"
    for each in sorted(seen - needed - set(may)):
        yield f"{what} {each} has no attachment"


def _wrong_files(volumes: Mapping[str, Row], folder: Path) -> Iterator[str]:
    files = {file.name: file.stat().st_size for file in folder.glob("*")}
    for name in sorted(files.keys() - volumes.keys()):
        volume_id = name.removeprefix(".").removesuffix(".part")
        if volume_id == name or volumes.get(volume_id, {}).get("state") != VolumeState.CREATING:
            yield f"file {name} has no volume"
    for volume_id, row in sorted(volumes.items()):
        if row["state"] in _MAYBE_WITHOUT_DATA:
            continue
        if volume_id not in files:
            yield f"volume {volume_id} has no file"
        elif row["state"] == VolumeState.READY and files[volume_id] != row["size_gib"] * 2**30:
            yield f"volume {volume_id} has {files[volume_id]} bytes, not {row['size_gib']} GiB"


def _wrong_status(volumes: Mapping[str, Row], attachments: Iterable[Row]) -> Iterator[str]:
    held: dict[str, list[AttachmentState]] = {each: [] for each in volumes}
    for row in attachments:
        held[row["volume_id"]].append(AttachmentState(row["state"]))
    for each, row in volumes.items():
        true = states.derive(VolumeState(row["state"]), held[each], row["pending_detaches"])
        if (row["status"], row["attach_status"]) != true:
            yield f"volume {each} says {row['status']}, {row['attach_status']}; it is {true}"

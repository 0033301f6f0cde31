# SPDX-License-Identifier: Apache-2.0
"""Compare database and backend, and repair what is safe to repair; for attachd-manage audit.

A first look, without any lock, only raises suspicions: while it lasts, hosts are let in and shut
out.  Each suspicious volume is looked at once more under its lock, with rows and exports read
anew, and only what differs then is a difference.  So a clean system is found clean, however busy
it is.  Repairs happen under that same lock.

What hosts themselves say of their devices is compared by hosts.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses

from attachd import exception, states
from attachd.conf import CONF
from attachd.db import audit as db
from attachd.drivers.base import AccessMode, BackendExport, Export, VolumeRef
from attachd.manager import driver_args, flow_runner
from attachd.manager.audit import hosts, rules
from attachd.manager.audit.rules import MEANINGS, REPAIRED, Difference, Found, Kind, Sides
from attachd.manager.backends import Backend
from attachd.states import AttachmentState, VolumeState, VolumeStatus

GIB = 2**30

_WITH_DATA = frozenset({VolumeState.READY, VolumeState.EXTENDING, VolumeState.ERROR_EXTENDING})
_GOING = frozenset({VolumeState.CREATING, VolumeState.EXTENDING, VolumeState.DELETING})
_HALF_WAY = frozenset({AttachmentState.CONNECTING, AttachmentState.DISCONNECTING})
_EVICTED = frozenset(
    {Kind.LEFTOVER_EXPORT, Kind.WRONG_MODE, Kind.EXTRA_HOST, Kind.EXTRA_PART, Kind.SESSION}
)
_MODES: tuple[AccessMode, ...] = ("rw", "ro")
_LOOKS_AT_UNPLACED = 3


@dataclasses.dataclass
class Findings:
    """What an audit of one backend has found.

    :ivar backend: ``host@backend``
    :ivar differences: those that were confirmed
    :ivar not_compared: what could not be compared, and why, each in a sentence
    """

    backend: str
    differences: list[Difference] = dataclasses.field(default_factory=list)
    not_compared: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Look:
    """All that database and backend have of one volume.

    :ivar row: of the volume, whichever backend it says; None: there is none
    :ivar size: bytes that the backend has of it; None: none
    :ivar status: what is stored of its status, and what should be
    """

    volume_id: str
    row: db.Row | None
    attachments: Sequence[db.Row]
    exported: Sequence[BackendExport]
    size: int | None
    status: tuple[VolumeStatus, VolumeStatus] | None = None

    @property
    def sides(self) -> Sides:
        """What is to be compared of its exports; of a volume without a row nothing is wanted."""
        volume = driver_args.volume_ref(self.row) if self.row else VolumeRef(self.volume_id, 0)
        certain: list[Export] = []
        doubtful: list[Export] = []
        for row in self.attachments:
            state = AttachmentState(row["state"])
            if row["connector"] is None or state in states.INACTIVE:
                continue
            (certain if state in states.WITH_ACCESS else doubtful).append(driver_args.export(row))
        return Sides(volume, certain, doubtful, self.exported)


Act = Callable[[Backend, _Look, Sequence[Found]], str]
"""Does something about what was found that is safe; returns why it could not be done, or ""."""


def compare(backend: Backend) -> Findings:
    """Find the differences of one backend, and leave them as they are.

    :param backend: set up; where that has failed, nothing is compared
    :raises Unavailable: the database does not answer
    """
    return _audit(backend, None)


def repair(backend: Backend) -> Findings:
    """Find the differences of one backend, and repair what is safe to repair.

    :raises: as :func:`compare`
    """
    return _audit(backend, _repair)


def _audit(backend: Backend, act: Act | None) -> Findings:
    findings = Findings(backend.host)
    if backend.error is not None:
        findings.not_compared.append(f"Backend {backend.name} is down: {backend.error}")
        return findings
    try:
        for volume_id in _suspects(backend):
            try:
                findings.differences += _confirmed(backend, volume_id, act)
            except (exception.BackendError, exception.Unavailable) as error:
                findings.not_compared.append(f"Volume {volume_id}: {flow_runner.reason(error)}")
        findings.differences += _unplaced(backend)
        at_hosts = hosts.compare(backend)
        findings.differences += at_hosts.differences
        findings.not_compared += at_hosts.not_compared
    except exception.BackendError as error:
        findings.not_compared.append(f"Backend {backend.name}: {flow_runner.reason(error)}")
    return findings


def _suspects(backend: Backend) -> list[str]:
    """Return the volumes that do not look right, which on a busy system need not mean much."""
    exported: dict[str, list[BackendExport]] = {}
    for each in backend.driver.list_exports():
        exported.setdefault(each.volume_id, []).append(each)
    stored = backend.driver.list_volumes()
    known = {row["id"]: row for row in db.list_volumes(backend.host)}
    attached: dict[str, list[db.Row]] = {}
    for row in db.list_attachments(backend.host):
        attached.setdefault(row["volume_id"], []).append(row)
    living = db.list_living_ids()
    looks = []
    for each in dict.fromkeys([*known, *exported, *stored]):
        found, rows = known.get(each), attached.get(each, [])
        seen = exported.get(each, []), stored.get(each)
        looks.append(_Look(each, found, rows, *seen, _status(found, rows) if found else None))
    return [
        look.volume_id
        for look in looks
        if _is_abandoned(look, living) or any(_found(backend, look))
    ]


def _status(row: db.Row, rows: Iterable[db.Row]) -> tuple[VolumeStatus, VolumeStatus]:
    return db.compute_statuses(row, [AttachmentState(each["state"]) for each in rows])[:2]


def _confirmed(backend: Backend, volume_id: str, act: Act | None) -> list[Difference]:
    """Look at a volume again, so that nobody changes anything meanwhile."""
    rows = db.list_attachments_of_volume(volume_id)
    before = _Look(volume_id, db.find_volume(volume_id), rows, (), None)
    if _is_abandoned(before, db.list_living_ids()):
        # Its lease is left to the one who is going to finish it; the rest is compared after that.
        return [_difference(backend, volume_id, _half_way(before))]
    try:
        with backend.lock(volume_id):
            return _settled(backend, volume_id, act)
    except exception.VolumeNotFound:
        # Nobody works on what has no row, and no row comes back.
        return _settled(backend, volume_id, act)


def _settled(backend: Backend, volume_id: str, act: Act | None) -> list[Difference]:
    """Tell what differs, after what can be done about it was done."""
    look = _look(backend, volume_id)
    found = list(_found(backend, look))
    # Data without a row: perhaps this is not the database that the backend belongs to.
    strange = look.row is None and look.size is not None
    safe = [each for each in found if MEANINGS[each[0]].safe and not strange]
    if act is None or not safe:
        return [_difference(backend, volume_id, each) for each in found]
    trouble = act(backend, look, safe)
    left = set(_found(backend, _look(backend, volume_id)))
    outcomes = {each: trouble or "It is still so." if each in left else REPAIRED for each in safe}
    return [_difference(backend, volume_id, each, outcomes.get(each, "")) for each in found]


def _look(backend: Backend, volume_id: str) -> _Look:
    # The rows first: what has no row has nothing at the backend either, and never gets it.
    row = db.find_volume(volume_id)
    attachments = db.list_attachments_of_volume(volume_id)
    ref = driver_args.volume_ref(row) if row else VolumeRef(volume_id, 0)
    exported = list(backend.driver.list_volume_exports(ref))
    size = backend.driver.list_volumes().get(volume_id)
    # Reservations come and go without the lock of the volume, so this is of one transaction.
    return _Look(volume_id, row, attachments, exported, size, db.get_statuses(volume_id))


def _found(backend: Backend, look: _Look) -> Iterator[Found]:
    """Find all that differs of one volume."""
    row = look.row
    if row is not None and not _is_here(backend, row):
        if look.exported or look.size is not None:
            yield Kind.ELSEWHERE, f"It is here, and its row says {row['host']}."
        return
    yield from rules.excess(backend.driver, look.sides)
    yield from (found for _to, found in rules.lacking(backend.driver, look.sides))
    if row is None:
        if look.size is not None:
            yield Kind.DATA_WITHOUT_VOLUME, f"There are {look.size} bytes of it."
        return
    yield from _of_data(row, look.size)
    yield from _of_status(look.status)


def _is_here(backend: Backend, row: db.Row) -> bool:
    host: str = row["host"] or ""
    return host.partition("#")[0] == backend.host


def _of_data(row: db.Row, size: int | None) -> Iterator[Found]:
    state = VolumeState(row["state"])
    if state not in _WITH_DATA:
        return
    if size is None:
        yield Kind.VOLUME_WITHOUT_DATA, f"It is {state}, and there is nothing of it."
    elif state is VolumeState.READY and size != row["size_gib"] * GIB:
        yield Kind.SIZE, f"It has {size} bytes, and its row says {row['size_gib']} GiB."


def _of_status(status: tuple[VolumeStatus, VolumeStatus] | None) -> Iterator[Found]:
    if status is not None and status[0] != status[1]:
        said, true = (f"{each.status} and {each.attach_status}" for each in status)
        yield Kind.STATUS, f"Its status and attach_status are {said}, and should be {true}."


def _is_abandoned(look: _Look, living: set[str]) -> bool:
    """Tell whether somebody should be at work on a volume, and nobody is."""
    if look.row is None or not _going(look):
        return False
    holder = look.row["lease_holder"]
    if holder is not None:
        return holder not in living
    # A message may be under way.
    rows = [look.row, *look.attachments]
    return bool(min(db.seconds_unchanged(each) for each in rows) > CONF.rpc.attach_timeout)


def _going(look: _Look) -> list[str]:
    """Name what is half-way."""
    rows = [each for each in look.attachments if each["state"] in _HALF_WAY]
    named = [f"Attachment {each['id']} is {each['state']}" for each in rows]
    if look.row is not None and look.row["state"] in _GOING:
        named.append(f"The volume is {look.row['state']}")
    return named


def _half_way(look: _Look) -> Found:
    return Kind.HALF_WAY, f"{'; '.join(_going(look))}; and nobody is at work on it."


def _repair(backend: Backend, look: _Look, found: Sequence[Found]) -> str:
    """Do what is safe, in the order in which access is taken away first."""
    kinds = {kind for kind, _what in found}
    driver, sides, trouble = backend.driver, look.sides, []
    rows = {row["id"]: row for row in look.attachments}

    def grant_all() -> None:
        there = list(driver.list_volume_exports(sides.volume))
        for export, _what in rules.lacking(driver, dataclasses.replace(sides, exported=there)):
            secret = driver_args.export_with_secret(rows[export.attachment_id]).secret
            driver.grant(sides.volume, dataclasses.replace(export, secret=secret))

    steps: list[tuple[bool, Callable[[], object]]] = [
        (bool(kinds & _EVICTED), lambda: driver.revoke_all_except(sides.volume, sides.staying)),
        (bool(kinds & {Kind.MISSING_EXPORT, *_EVICTED}), grant_all),
        (Kind.STATUS in kinds, lambda: db.repair_status(look.volume_id)),
    ]
    for is_due, step in steps:
        try:
            if is_due:
                step()
        except (exception.BackendError, exception.SecretUnreadable) as error:
            trouble.append(flow_runner.reason(error))
    return " ".join(trouble)


def _unplaced(backend: Backend) -> list[Difference]:
    """Find what is of no volume; looked for several times, as no lock keeps others from it."""
    found = {each.name: each for each in backend.driver.list_orphans()}
    for _ in range(_LOOKS_AT_UNPLACED):
        if not found:
            break
        wanted = _wanted_parts(backend)
        still = {each.name for each in backend.driver.list_orphans()}
        found = {name: found[name] for name in found if name in still and name not in wanted}
    return [
        Difference(Kind.UNPLACED, backend.host, "", f"There is {each.name}.", each.remedy)
        for each in found.values()
    ]


def _wanted_parts(backend: Backend) -> set[str]:
    """Return all that may be there of the attachments that there are, whatever their modes."""
    volumes = {row["id"]: driver_args.volume_ref(row) for row in db.list_volumes(backend.host)}
    wanted: set[str] = set()
    for row in db.list_attachments(backend.host):
        if row["connector"] is None or row["volume_id"] not in volumes:
            continue
        both = [dataclasses.replace(driver_args.export(row), mode=mode) for mode in _MODES]
        for each in backend.driver.expected_exports(volumes[row["volume_id"]], both):
            wanted |= each.parts
    return wanted


def _difference(backend: Backend, volume_id: str, found: Found, outcome: str = "") -> Difference:
    kind, what = found
    return Difference(kind, backend.host, volume_id, what, MEANINGS[kind].action, outcome)

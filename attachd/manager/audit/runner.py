# SPDX-License-Identifier: Apache-2.0
"""Audit one backend: compare it with the database, and repair what is safe to repair.

A first comparison, without any lock, only finds suspects: meanwhile hosts are granted access and
lose it.  Each suspect volume is compared once more under its lock, with rows and exports read
again, and only what differs then is a difference.  So a consistent system has no differences,
however busy it is.  Repairs happen under that same lock.

hosts.py compares what the agents of hosts report of their devices.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import dataclasses

from attachd import exception, states
from attachd.conf import CONF
from attachd.db import audit, host_fences
from attachd.db.row_types import AttachmentRow, DriverVolumeRow
from attachd.drivers import abilities
from attachd.drivers.abilities import Audit, Evict
from attachd.drivers.base import AccessMode, BackendExport, Export, VolumeRef
from attachd.manager import backends, flow_runner
from attachd.manager.audit import hosts, rules, snapshots
from attachd.manager.audit.rules import (
    MEANINGS,
    REPAIRED,
    Difference,
    ExportComparison,
    Finding,
    Kind,
)
from attachd.manager.backends import Backend
from attachd.states import AttachmentState, VolumeState, VolumeStatus

GIB = 2**30

_WITH_DATA = frozenset(
    {
        *(VolumeState.READY, VolumeState.UPLOADING, VolumeState.AWAITING_TRANSFER),
        *(VolumeState.EXTENDING, VolumeState.ERROR_EXTENDING),
    }
)
_OF_KNOWN_SIZE = frozenset({VolumeState.READY, VolumeState.AWAITING_TRANSFER})
_VOLUME_IN_PROGRESS = frozenset(
    {
        *(VolumeState.CREATING, VolumeState.EXTENDING, VolumeState.DELETING),
        *(VolumeState.MANAGING, VolumeState.UNMANAGING, VolumeState.REVERTING),
        *(VolumeState.DOWNLOADING, VolumeState.UPLOADING),
    }
)
_ATTACHMENT_IN_PROGRESS = frozenset({AttachmentState.CONNECTING, AttachmentState.DISCONNECTING})
_NEEDS_REVOKE = frozenset(
    {Kind.ORPHAN_EXPORT, Kind.WRONG_MODE, Kind.EXTRA_HOST, Kind.EXTRA_PART, Kind.SESSION}
)
_MODES: tuple[AccessMode, ...] = ("rw", "ro")
_ORPHAN_CHECKS = 3
_OF_UNKNOWN_DATA = (
    "Kept: there is data of the volume and no row, so this may be the wrong database. Remove the "
    "data, or restore the row, before."
)


@dataclasses.dataclass
class AuditResult:
    """The result of an audit of one backend.

    :ivar backend: ``host@backend``
    :ivar differences: those that were confirmed
    :ivar not_compared: what could not be compared, and why, each in a sentence
    :ivar exports: how many exports were compared; None: it is no backend, or could not be compared
    """

    backend: str
    differences: list[Difference] = dataclasses.field(default_factory=list)
    not_compared: list[str] = dataclasses.field(default_factory=list)
    exports: int | None = None


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """What database and backend have of one volume.

    :ivar row: of the volume, also if it names another backend; None: there is none
    :ivar size: bytes that the backend has of it; None: none
    :ivar status: the stored status and the derived one
    """

    volume_id: str
    row: DriverVolumeRow | None
    attachments: Sequence[AttachmentRow]
    exported: Sequence[BackendExport]
    size: int | None
    status: tuple[VolumeStatus, VolumeStatus] | None = None

    @property
    def exports(self) -> ExportComparison:
        """The exports to compare; a volume without a row must have none."""
        volume = backends.volume_ref(self.row) if self.row else VolumeRef(self.volume_id, 0)
        certain: list[Export] = []
        doubtful: list[Export] = []
        for row in self.attachments:
            state = AttachmentState(row["state"])
            if row["connector"] is None or state in states.INACTIVE:
                continue
            (certain if state in states.WITH_ACCESS else doubtful).append(backends.export(row))
        return ExportComparison(volume, certain, doubtful, self.exported)


Repair = Callable[[Backend, _Snapshot, Sequence[Finding]], str]
"""Repairs findings that are safe to repair; returns why it failed, or ""."""


def compare(backend: Backend) -> AuditResult:
    """Find the differences of one backend, and leave them as they are.

    :param backend: set up; if that has failed, nothing is compared
    :raises Unavailable: the database does not answer
    """
    return _audit(backend, None)


def compare_exports(backend: Backend, volume_id: str) -> list[str]:
    """Find how the exports of one volume differ from its attachments.

    A volume without a difference is compared without its lock, so that the answer does not wait
    for work on it.

    :returns: a sentence for each difference; none if the driver cannot list exports
    :raises Unavailable: the backend does not answer, or other operations hold the volume
    """
    backend.check_ready()
    driver = backend.driver
    if not isinstance(driver, Audit):
        return []
    with _unavailable(backend):
        if not _compare_exports(driver, volume_id):
            return []
        with backend.lock(volume_id):
            return _compare_exports(driver, volume_id)


def compare_volume(backend: Backend, volume_id: str) -> list[str]:
    """Find out whether the data of one volume is missing, and how its exports differ.

    :returns: as :func:`compare_exports`
    :raises: as :func:`compare_exports`
    """
    backend.check_ready()
    row = audit.find_volume(volume_id)
    ref = backends.volume_ref(row) if row else VolumeRef(volume_id, 0)
    with _unavailable(backend):
        if not backend.driver.has_volume(ref):
            return [f"Backend {backend.name} has no data of the volume."]
    return compare_exports(backend, volume_id)


@contextlib.contextmanager
def _unavailable(backend: Backend) -> Iterator[None]:
    """Raise Unavailable instead of an error of the backend."""
    try:
        yield
    except exception.BackendError as error:
        raise exception.Unavailable(
            reason=f"Backend {backend.name} does not answer: {flow_runner.public_reason(error)}"
        ) from error


def _compare_exports(driver: Audit, volume_id: str) -> list[str]:
    row = audit.find_volume(volume_id)
    attachments = audit.list_attachments_of_volume(volume_id)
    ref = backends.volume_ref(row) if row else VolumeRef(volume_id, 0)
    exported = list(driver.list_volume_exports(ref))
    exports = _Snapshot(volume_id, row, attachments, exported, None).exports
    return [text for _kind, text in _find_export_differences(driver, exports)]


def _find_export_differences(driver: Audit, exports: ExportComparison) -> Iterator[Finding]:
    yield from rules.find_unexpected(driver, exports)
    yield from (finding for _export, finding in rules.find_missing(driver, exports))


def repair(backend: Backend) -> AuditResult:
    """Find the differences of one backend, and repair what is safe to repair.

    :raises: as :func:`compare`
    """
    result = _audit(backend, _repair)
    return dataclasses.replace(result, differences=rules.explain_kept(result.differences))


def _audit(backend: Backend, repair_with: Repair | None) -> AuditResult:
    result = AuditResult(backend.host)
    if backend.error is not None:
        result.not_compared.append(f"Backend {backend.name} is down: {backend.error}")
        return result
    if not isinstance(backend.driver, Audit):
        result.not_compared.append(f"Backend {backend.name}: its driver does not list exports.")
    try:
        exported = abilities.list_exports(backend.driver) or {}
        result.exports = sum(map(len, exported.values()))
        for volume_id in _suspects(backend, exported):
            try:
                result.differences += _confirm(backend, volume_id, repair_with)
            except (exception.BackendError, exception.Unavailable) as error:
                result.not_compared.append(f"Volume {volume_id}: {flow_runner.reason(error)}")
        result.differences += snapshots.compare(backend)
        result.differences += _find_orphans(backend)
        at_hosts = hosts.compare(backend)
        result.differences += at_hosts.differences
        result.not_compared += at_hosts.not_compared
    except exception.BackendError as error:
        result.not_compared.append(f"Backend {backend.name}: {flow_runner.reason(error)}")
    return result


def _suspects(backend: Backend, exported: dict[str, list[BackendExport]]) -> list[str]:
    """Return the volumes that seem to differ; on a busy system many of them do not.

    :param exported: by volume; those of the backend's own volumes are taken out
    """
    stored = {**backend.driver.list_volumes()}
    living = audit.list_living_ids()
    suspects = [
        snapshot.volume_id
        for page in audit.list_pages(backend.host)
        for snapshot in _compare_page(page, exported, stored)
        if _is_abandoned(snapshot, living) or any(_find(backend, snapshot))
    ]
    return [*suspects, *dict.fromkeys([*exported, *stored])]


def _compare_page(
    page: audit.Page, exported: dict[str, list[BackendExport]], stored: dict[str, int]
) -> Iterator[_Snapshot]:
    """Yield what there is of the volumes of a page; take it out of what the backend has."""
    attached = defaultdict[str, list[AttachmentRow]](list)
    for row in page.attachments:
        attached[row["volume_id"]].append(row)
    for volume_id, volume in page.volumes.items():
        rows = attached[volume_id]
        seen = exported.pop(volume_id, []), stored.pop(volume_id, None)
        yield _Snapshot(volume_id, volume, rows, *seen, _status(volume, rows))


def _status(
    row: DriverVolumeRow, rows: Iterable[AttachmentRow]
) -> tuple[VolumeStatus, VolumeStatus]:
    return audit.compute_statuses(
        row, [AttachmentState(attachment["state"]) for attachment in rows]
    )[:2]


def _confirm(backend: Backend, volume_id: str, repair_with: Repair | None) -> list[Difference]:
    """Compare a volume again, under its lock."""
    rows = audit.list_attachments_of_volume(volume_id)
    before = _Snapshot(volume_id, audit.find_volume(volume_id), rows, (), None)
    if _is_abandoned(before, audit.list_living_ids()):
        # Its lease is left to the manager that will finish it; the rest is compared after that.
        return [_difference(backend, volume_id, _interrupted(before))]
    try:
        with backend.lock(volume_id):
            return _resolve(backend, volume_id, repair_with)
    except exception.VolumeNotFound:
        # No operation runs on a volume without a row, and a deleted row is never added again.
        return _resolve(backend, volume_id, repair_with)


def _resolve(backend: Backend, volume_id: str, repair_with: Repair | None) -> list[Difference]:
    """Return the differences, after those that are safe to repair were repaired."""
    snapshot = _take_snapshot(backend, volume_id)
    findings = list(_find(backend, snapshot))
    # Data without a row: this may not be the database that the backend belongs to.
    unknown = snapshot.row is None and snapshot.size is not None
    safe = [finding for finding in findings if MEANINGS[finding[0]].safe]
    if repair_with is None or not safe:
        return [_difference(backend, volume_id, finding) for finding in findings]
    if unknown:
        kept = dict.fromkeys(safe, _OF_UNKNOWN_DATA)
        return [_difference(backend, volume_id, one, kept.get(one, "")) for one in findings]
    trouble = repair_with(backend, snapshot, safe)
    remaining = set(_find(backend, _take_snapshot(backend, volume_id)))
    outcomes = {
        finding: trouble or "It is still so." if finding in remaining else REPAIRED
        for finding in safe
    }
    return [
        _difference(backend, volume_id, finding, outcomes.get(finding, "")) for finding in findings
    ]


def _take_snapshot(backend: Backend, volume_id: str) -> _Snapshot:
    # The rows first: a volume without a row has nothing at the backend, and never gets it.
    row = audit.find_volume(volume_id)
    attachments = audit.list_attachments_of_volume(volume_id)
    ref = backends.volume_ref(row) if row else VolumeRef(volume_id, 0)
    driver = backend.driver
    exported = list(driver.list_volume_exports(ref)) if isinstance(driver, Audit) else []
    size = driver.find_size(ref)
    # Reservations come and go without the volume's lock, so this is of one transaction.
    return _Snapshot(volume_id, row, attachments, exported, size, audit.get_statuses(volume_id))


def _find(backend: Backend, snapshot: _Snapshot) -> Iterator[Finding]:
    """Find all that differs of one volume."""
    row = snapshot.row
    if row is not None and not _is_here(backend, row):
        if snapshot.exported or snapshot.size is not None:
            yield Kind.WRONG_BACKEND, f"It is here, and its row says {row['host']}."
        return
    if isinstance(backend.driver, Audit):
        yield from _find_export_differences(backend.driver, snapshot.exports)
    if row is None:
        if snapshot.size is not None:
            yield Kind.DATA_WITHOUT_VOLUME, f"There are {snapshot.size} bytes of it."
        return
    yield from _compare_data(row, snapshot.size)
    yield from _compare_status(snapshot.status)


def _is_here(backend: Backend, row: DriverVolumeRow) -> bool:
    host = row["host"] or ""
    return host.partition("#")[0] == backend.host


def _compare_data(row: DriverVolumeRow, size: int | None) -> Iterator[Finding]:
    state = VolumeState(row["state"])
    if state not in _WITH_DATA:
        return
    if size is None:
        yield Kind.VOLUME_WITHOUT_DATA, f"It is {state}, and there is nothing of it."
    elif state in _OF_KNOWN_SIZE and size != row["size_gib"] * GIB:
        yield Kind.SIZE, f"It has {size} bytes, and its row says {row['size_gib']} GiB."


def _compare_status(status: tuple[VolumeStatus, VolumeStatus] | None) -> Iterator[Finding]:
    if status is not None and status[0] != status[1]:
        stored, derived = (f"{pair.status} and {pair.attach_status}" for pair in status)
        yield (
            Kind.STATUS,
            f"Its status and attach_status are {stored}, and should be {derived}.",
        )


def _is_abandoned(snapshot: _Snapshot, living: set[str]) -> bool:
    """Return whether an operation on a volume was begun, and no process works on it."""
    if snapshot.row is None or not _in_progress(snapshot):
        return False
    holder = snapshot.row["lease_holder"]
    if holder is not None:
        return holder not in living
    # A message may still be in the queue.
    rows: list[DriverVolumeRow | AttachmentRow] = [snapshot.row, *snapshot.attachments]
    return bool(min(audit.seconds_unchanged(row) for row in rows) > CONF.rpc.attach_timeout)


def _in_progress(snapshot: _Snapshot) -> list[str]:
    """Return the rows in transitional states, each in a clause."""
    clauses = [
        f"Attachment {row['id']} is {row['state']}"
        for row in snapshot.attachments
        if row["state"] in _ATTACHMENT_IN_PROGRESS
    ]
    if snapshot.row is not None and snapshot.row["state"] in _VOLUME_IN_PROGRESS:
        clauses.append(f"The volume is {snapshot.row['state']}")
    return clauses


def _interrupted(snapshot: _Snapshot) -> Finding:
    return Kind.INTERRUPTED, f"{'; '.join(_in_progress(snapshot))}; and no manager works on it."


def _repair(backend: Backend, snapshot: _Snapshot, findings: Sequence[Finding]) -> str:
    """Repair what is safe; access is revoked before it is granted."""
    kinds = {kind for kind, _text in findings}
    repairs = (
        (_NEEDS_REVOKE, _revoke_unexpected),
        ({Kind.MISSING_EXPORT, *_NEEDS_REVOKE}, _grant_missing),
        ({Kind.STATUS}, lambda _backend, snapshot: audit.repair_status(snapshot.volume_id)),
    )
    trouble = []
    for needing, repair_these in repairs:
        try:
            if kinds & needing:
                repair_these(backend, snapshot)
        except (
            exception.BackendError,
            exception.SecretUnreadable,
            exception.HostFenced,
        ) as error:
            trouble.append(flow_runner.reason(error))
    return " ".join(trouble)


def _revoke_unexpected(backend: Backend, snapshot: _Snapshot) -> None:
    if not isinstance(backend.driver, Evict):
        raise exception.BackendError(
            f"The driver of backend {backend.name} cannot revoke what it has not granted.",
            final=True,
        )
    backend.driver.revoke_all_except(snapshot.exports.volume, snapshot.exports.kept)


def _grant_missing(backend: Backend, snapshot: _Snapshot) -> None:
    driver, comparison = backend.driver, snapshot.exports
    assert isinstance(driver, Audit), "a difference of exports without a list of them"
    rows = {row["id"]: row for row in snapshot.attachments}
    exported = list(driver.list_volume_exports(comparison.volume))
    current = dataclasses.replace(comparison, exported=exported)
    missing = [
        rows[export.attachment_id] for export, _finding in rules.find_missing(driver, current)
    ]
    refusals = []
    for row in missing:
        try:
            host_fences.check_attachment(row)
        except exception.HostFenced as error:
            refusals.append(error)
        else:
            driver.grant(comparison.volume, backends.export_with_secret(row))
    if refusals:
        raise refusals[0]


def _find_orphans(backend: Backend) -> list[Difference]:
    """Find objects of no volume; several times, as no lock protects them from changes."""
    driver = backend.driver
    if not isinstance(driver, Audit):
        return []
    orphans = {orphan.name: orphan for orphan in driver.list_orphans()}
    for _ in range(_ORPHAN_CHECKS):
        if not orphans:
            break
        expected = _expected_parts(backend.host, driver)
        present = {orphan.name for orphan in driver.list_orphans()}
        orphans = {
            name: orphan
            for name, orphan in orphans.items()
            if name in present and name not in expected
        }
    return [
        Difference(
            Kind.ORPHAN_ACCOUNT, backend.host, "", f"There is {orphan.name}.", orphan.remedy
        )
        for orphan in orphans.values()
    ]


def _expected_parts(backend: str, driver: Audit) -> set[str]:
    """Return all parts that the present attachments may have, in either mode."""
    parts: set[str] = set()
    for page in audit.list_pages(backend):
        for row in page.attachments:
            volume = page.volumes.get(row["volume_id"])
            if row["connector"] is None or volume is None:
                continue
            both = [dataclasses.replace(backends.export(row), mode=mode) for mode in _MODES]
            for export in driver.expected_exports(backends.volume_ref(volume), both):
                parts |= export.parts
    return parts


def _difference(
    backend: Backend, volume_id: str, finding: Finding, outcome: str = ""
) -> Difference:
    kind, text = finding
    return Difference(kind, backend.host, volume_id, text, MEANINGS[kind].action, outcome)

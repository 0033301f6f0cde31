# SPDX-License-Identifier: Apache-2.0
"""The kinds of differences between database and backend, their causes and repairs.

The functions here call only the driver's pure functions, and neither database nor backend.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import enum
from types import MappingProxyType
from typing import NamedTuple

from attachd.drivers import abilities
from attachd.drivers.abilities import Audit
from attachd.drivers.base import AccessMode, BackendExport, Export, VolumeRef


class Kind(enum.StrEnum):
    """The kind of a difference; for programs, and an anchor in the documentation."""

    ORPHAN_EXPORT = "orphan-export"
    WRONG_MODE = "wrong-mode"
    EXTRA_HOST = "extra-host"
    EXTRA_PART = "extra-part"
    SESSION = "session"
    MISSING_EXPORT = "missing-export"
    STATUS = "status"
    INTERRUPTED = "interrupted"
    VOLUME_WITHOUT_DATA = "volume-without-data"
    DATA_WITHOUT_VOLUME = "data-without-volume"
    SNAPSHOT_WITHOUT_DATA = "snapshot-without-data"
    DATA_WITHOUT_SNAPSHOT = "data-without-snapshot"
    SIZE = "size"
    WRONG_BACKEND = "wrong-backend"
    ORPHAN_ACCOUNT = "orphan-account"
    MISSING_DEVICE = "missing-device"
    ORPHAN_DEVICE = "orphan-device"
    UNUSED_ATTACHMENT = "unused-attachment"
    STRAY_DEVICE = "stray-device"
    SERVER_GONE = "server-gone"
    UNLISTED_ATTACHMENT = "unlisted-attachment"
    UNKNOWN_ATTACHMENT = "unknown-attachment"
    WRONG_SERVER = "wrong-server"
    WRONG_HOST = "wrong-host"


class Meaning(NamedTuple):
    """The meaning of one kind of difference.

    :ivar cause: its usual cause
    :ivar action: what is safe to do about it
    :ivar safe: whether an audit may do so itself
    :ivar kept: why it may not
    """

    cause: str
    action: str
    safe: bool
    kept: str = ""


MEANINGS: Mapping[Kind, Meaning] = MappingProxyType(
    {
        Kind.ORPHAN_EXPORT: Meaning(
            "No attachment needs this export: its row was removed without the manager, or the "
            "export was made by hand.",
            "Revoke it.",
            safe=True,
        ),
        Kind.WRONG_MODE: Meaning(
            "The mode of the attachment differs from the one in which its host has access.",
            "Revoke it in this mode, and grant it in the one of the attachment.",
            safe=True,
        ),
        Kind.EXTRA_HOST: Meaning(
            "A host without an attachment has access: its row was removed without the manager, or "
            "the host was added by hand.",
            "Revoke its access, and end its sessions.",
            safe=True,
        ),
        Kind.EXTRA_PART: Meaning(
            "An object, such as a CHAP account, was made for a host that has no attachment.",
            "Remove it.",
            safe=True,
        ),
        Kind.SESSION: Meaning(
            "A host is logged in, and has no access any more.",
            "End its session.",
            safe=True,
        ),
        Kind.MISSING_EXPORT: Meaning(
            "The backend has lost it: it was restarted, or the export was removed by hand.",
            "Grant it again.",
            safe=True,
        ),
        Kind.STATUS: Meaning(
            "The row, or those of its attachments, were changed with SQL.",
            "Store the status that follows from the volume's own state and its attachments.",
            safe=True,
        ),
        Kind.INTERRUPTED: Meaning(
            "The manager that worked on it has died.",
            "None: a running manager of this backend finishes or undoes it. Is there one?",
            safe=False,
            kept="a running manager finishes or undoes it.",
        ),
        Kind.VOLUME_WITHOUT_DATA: Meaning(
            "The backend does not have the data of this volume: it was removed there, or the "
            "backend's storage is not mounted.",
            "Find the data first. An audit does not repair this.",
            safe=False,
            kept="an audit creates no data.",
        ),
        Kind.DATA_WITHOUT_VOLUME: Meaning(
            "The backend has data of a volume that is not in the database: its row was removed "
            "without the manager, or the data belongs to another database.",
            "Find out which database it belongs to. An audit never removes data.",
            safe=False,
            kept="an audit removes no data.",
        ),
        Kind.SNAPSHOT_WITHOUT_DATA: Meaning(
            "The backend does not have the data of this snapshot: it was removed there, or the "
            "backend's storage is not mounted.",
            "Find the data first. If it is lost, delete the snapshot.",
            safe=False,
            kept="an audit creates no data.",
        ),
        Kind.DATA_WITHOUT_SNAPSHOT: Meaning(
            "The backend has data of a snapshot that is not in the database: its row was removed "
            "without the manager, or the data belongs to another database.",
            "Find out which database it belongs to. An audit never removes data.",
            safe=False,
            kept="an audit removes no data.",
        ),
        Kind.SIZE: Meaning(
            "The volume was resized without the manager.",
            "Find out which size is right: extend the volume, or correct its row.",
            safe=False,
            kept="an audit resizes no data, and does not know which size is right.",
        ),
        Kind.WRONG_BACKEND: Meaning(
            "The database says that this volume is at another backend.",
            "Find out which of them is right. An audit does not repair this.",
            safe=False,
            kept="an audit does not know which of them is right.",
        ),
        Kind.ORPHAN_ACCOUNT: Meaning(
            "A manager died while it granted or revoked access, and the row is removed.",
            "",
            safe=False,
            kept="another program may use it, and it gives no access by itself.",
        ),
        Kind.MISSING_DEVICE: Meaning(
            "The host has lost the device, and its agent could not restore it.",
            "None: the agent tries with each report. Its error and its log have the reason.",
            safe=False,
            kept="only the agent of the host can create the device.",
        ),
        Kind.ORPHAN_DEVICE: Meaning(
            "The attachment was deleted by force, and the agent could not remove the device.",
            "None: the agent tries with each report. Find out which process uses the device.",
            safe=False,
            kept="only the agent of the host can remove the device.",
        ),
        Kind.UNUSED_ATTACHMENT: Meaning(
            "The server is stopped since its host was started, or Compute has failed between two "
            "steps.",
            "None if the server is stopped. Else let Compute connect it again: openstack server "
            "reboot --hard; or delete the attachment if no server needs it.",
            safe=False,
            kept="only Compute, or the caller who attached the volume, can connect it.",
        ),
        Kind.STRAY_DEVICE: Meaning(
            "The attachment was deleted while its host had the device: by force, by a fence, or "
            "while the agent did not answer.",
            "Run attachd host-strays on that host: it names what uses the device, and with "
            "--clean removes it.",
            safe=False,
            kept="only the host can remove the device.",
        ),
        Kind.SERVER_GONE: Meaning(
            "Compute deleted the server while attachd did not answer, or the attachment was not "
            "made by Compute.",
            "Delete the attachment, after its host has no device of the volume.",
            safe=True,
        ),
        Kind.UNLISTED_ATTACHMENT: Meaning(
            "Compute has not deleted it after a detach, a migration or an evacuation, or Compute "
            "replaces a volume of the server at the moment.",
            "If the server replaces no volume, and that host has no device of it, delete the "
            "attachment through the Block Storage API.",
            safe=False,
            kept="the host may use the volume, which Compute may be about to list.",
        ),
        Kind.UNKNOWN_ATTACHMENT: Meaning(
            "The attachment was deleted without Compute (by recovery after a failed detach, a "
            "fence, or by force), or the database is restored from a backup, or Compute uses "
            "another block storage service.",
            "If attachd has deleted it, detach the volume from the server through Compute, as a "
            "repair does. Else the server may write to a volume that attachd takes for free: stop "
            "the server before the volume is attached elsewhere. nova-manage volume_attachment "
            "refresh gives it a new attachment.",
            safe=False,
            kept="no event says that attachd has deleted it, and only Compute can give the server "
            "a new attachment.",
        ),
        Kind.WRONG_SERVER: Meaning(
            "One of both databases was changed by hand, or is restored from a backup.",
            "Detach it from neither server, which would delete this attachment: stop both. "
            "nova-manage volume_attachment refresh gives one of them a new attachment.",
            safe=False,
            kept="only Compute can give a server a new attachment.",
        ),
        Kind.WRONG_HOST: Meaning(
            "The server was migrated or evacuated, and its attachment was not.",
            "Stop the server. nova-manage volume_attachment refresh gives it a new attachment on "
            "its present host.",
            safe=False,
            kept="only Compute can give the server a new attachment.",
        ),
    }
)


@dataclasses.dataclass(frozen=True)
class Difference:
    """One difference between database and backend.

    :ivar backend: ``host@backend``; compute.NAME for one with Compute
    :ivar volume_id: "" if it belongs to no known volume
    :ivar found: what differs, in one sentence
    :ivar action: what is safe to do about it
    :ivar outcome: of a repair: "" for a comparison alone, REPAIRED, or why there is none
    """

    kind: Kind
    backend: str
    volume_id: str
    found: str
    action: str
    outcome: str = ""

    @property
    def cause(self) -> str:
        """Its usual cause."""
        return MEANINGS[self.kind].cause


REPAIRED = "repaired"


def explain_kept(differences: Iterable[Difference]) -> list[Difference]:
    """Return the differences after a repair, those without an outcome with the reason."""
    return [
        dataclasses.replace(item, outcome=item.outcome or f"Kept: {MEANINGS[item.kind].kept}")
        for item in differences
    ]


Finding = tuple[Kind, str]
"""The kind, and one sentence about what differs."""


@dataclasses.dataclass(frozen=True)
class ExportComparison:
    """The exports of a volume in the database and at the backend.

    :ivar certain: exports that hosts have according to the rows
    :ivar doubtful: exports that they may have: an operation is in progress, or an error has left
        that open
    :ivar exported: exports that the backend has
    """

    volume: VolumeRef
    certain: Sequence[Export]
    doubtful: Sequence[Export]
    exported: Sequence[BackendExport]

    @property
    def kept(self) -> list[Export]:
        """The exports that must not be revoked."""
        return [*self.certain, *self.doubtful]


def find_unexpected(driver: Audit, comparison: ExportComparison) -> Iterator[Finding]:
    """Find what the backend has without a row that needs it."""
    allowed = _by_mode(driver.expected_exports(comparison.volume, comparison.kept))
    allowed_hosts = {host for export in allowed.values() for host in export.holders}
    for export in comparison.exported:
        mode = _mode_suffix(export.mode)
        expected = allowed.get(export.mode)
        if expected is None:
            moved = export.holders and export.holders <= allowed_hosts
            yield (Kind.WRONG_MODE if moved else Kind.ORPHAN_EXPORT), _describe(export)
            continue
        for host in sorted(export.holders - expected.holders):
            kind = Kind.WRONG_MODE if host in allowed_hosts else Kind.EXTRA_HOST
            yield kind, f"{host} has access{mode}."
        for part in sorted(export.parts - expected.parts):
            yield Kind.EXTRA_PART, f"There is {part}{mode}."
        for host in sorted(export.sessions - export.holders):
            yield Kind.SESSION, f"{host} is logged in{mode}."


def find_missing(driver: Audit, comparison: ExportComparison) -> Iterator[tuple[Export, Finding]]:
    """Find what the rows need and the backend does not have, with the export to grant."""
    for export in comparison.certain:
        missing = abilities.find_missing(driver, comparison.volume, export, comparison.exported)
        clauses = [clause for part in missing for clause in _describe_missing(part)]
        if clauses:
            text = f"Of attachment {export.attachment_id}: {', '.join(clauses)}."
            yield export, (Kind.MISSING_EXPORT, text)


def _describe_missing(missing: BackendExport) -> Iterator[str]:
    mode = _mode_suffix(missing.mode)
    for host in sorted(missing.holders):
        yield f"{host} has no access{mode}"
    for part in sorted(missing.parts):
        yield f"there is no {part.removeprefix('the ')}{mode}"


def _by_mode(exports: Iterable[BackendExport]) -> dict[AccessMode | None, BackendExport]:
    return {export.mode: export for export in exports}


def _mode_suffix(mode: AccessMode | None) -> str:
    return f" ({mode})" if mode else ""


def _describe(export: BackendExport) -> str:
    clauses = [
        *(f"{host} has access" for host in sorted(export.holders)),
        *(f"there is {part}" for part in sorted(export.parts)),
        *(f"{host} is logged in" for host in sorted(export.sessions)),
    ]
    return f"It is exported{_mode_suffix(export.mode)}: {', '.join(clauses) or 'to no host'}."

# SPDX-License-Identifier: Apache-2.0
"""Which machine is the agent of a host, and what its reports prove.

A key is copied with the disk that it is on, as are the journal and the name of the host.  So each
report has a token, which the agent has stored before, and the one that was accepted before it.  A
report is accepted if the stored token is one of both.  A copy of the disk, or a journal from a
backup, has a token that the other machine has passed.

A report may be lost, delayed or repeated, and the agent be killed at any moment.  So reports have
an order: how many processes of the agent there were, and a number in the process.  One that is
older than the accepted one changes nothing.  If its sender gets the answer that it is old, it
sends another one and says so: then there are two senders.

The host has no device: that is a proof by the machine that made it, as long as it runs and has its
journal, and after it was started again.
"""

from collections.abc import Mapping
import datetime
import enum
import hmac
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from oslo_log import log
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledSelect
from attachd.db.engine.retry import retried
from attachd.db.row_types import MachineRow

LOG = log.getLogger(__name__)

_AGENTS = models.agents
ORDER: Final = ("report_process", "report_start", "report_number", "report_token")
"""The columns that no two reports of a host have in common."""
_COLUMNS: Final = (
    "host",
    "key_digest",
    "boot_id",
    "machine_id",
    *ORDER,
    "journal_losses",
    "former_boot_at",
    "heartbeat_at",
    "conflict",
    "refused_boots",
    "initiators",
    "content_number",
    "libvirt_secrets",
)
_FENCED: Final = models.host_fences.c.fenced_at.is_not(None)
_READ: Final = CompiledSelect(
    sa.select(
        *(_AGENTS.c[name] for name in _COLUMNS),
        sa.exists().where(_FENCED).label("any_host_fenced"),
    ).where(_AGENTS.c.host == sa.bindparam("match_host")),
    MachineRow,
)


REMOVED: Final = "!"
"""The begin of what is stored with devices of an agent that was removed by force."""

SILENT_INTERVALS: Final = 1.5
"""After how many intervals of reports a machine may have been started again."""


class Changed(Exception):
    """Another report was stored since the row was read."""


class Verdict(enum.Enum):
    """What a report is."""

    ACCEPTED = "accepted"
    RESTARTED = "restarted"
    """The first one since the machine was started again."""
    JOURNAL_LOST = "journal lost"
    """The first one since the machine has an older journal, or another one."""
    OLD = "old"
    """Older than the accepted one; nothing follows from it."""
    CONFLICT = "conflict"
    """Another machine's."""


class AcceptedReport(TypedDict):
    """What is to be stored of a report that is accepted, by the names of columns."""

    boot_id: str
    machine_id: str | None
    report_token: str
    report_process: str
    report_start: int
    report_number: int
    former_boot_at: NotRequired[datetime.datetime | None]
    journal_losses: NotRequired[int]


class Claim(NamedTuple):
    """What a report says about its sender.

    :ivar process: a random name
    :ivar start: how many processes of the agent there were, by its journal
    :ivar number: of the report, in its process
    :ivar previous: the last token that was accepted, by the journal; None: the journal has none
    :ivar next: the token of this report
    :ivar is_repeated: whether the answer to the report before was that it is old
    :ivar has_rival: whether answers have shown that another process reports at the same time
    :ivar is_known: whether a report of the process was accepted before
    """

    boot_id: str
    machine_id: str | None
    process: str
    start: int
    number: int
    previous: str | None
    next: str
    is_repeated: bool = False
    has_rival: bool = False
    is_known: bool = False


def get_claim(report: Mapping[str, Any]) -> Claim:
    """Return what a report says about its sender.

    :param report: as agent_manager_api.Report
    """
    return Claim(report["boot_id"], report["machine_id"], **report["token"])


# ---- Rules ----


def judge(row: MachineRow, claim: Claim) -> Verdict:
    """Return what a report is.

    :param row: of the host, as of :func:`read`
    """
    is_same_boot = row["boot_id"] == claim.boot_id
    if row["report_token"] is None:
        is_first = is_same_boot or row["boot_id"] is None
        return Verdict.ACCEPTED if is_first else Verdict.RESTARTED
    is_token_known = row["report_token"] in {claim.previous, claim.next}
    if claim.process == row["report_process"]:
        return _judge_same_process(row, claim, is_token_known=is_token_known)
    return _judge_other_process(row, claim, is_token_known=is_token_known)


def _judge_same_process(row: MachineRow, claim: Claim, *, is_token_known: bool) -> Verdict:
    """Return what a report of the process is whose report was accepted before.

    Its token need not be known: the database may have been restored from a backup.  But a copy of
    a machine that runs has its process as well.
    """
    if claim.has_rival:
        return Verdict.CONFLICT
    assert row["report_number"] is not None
    if claim.number < row["report_number"]:
        return Verdict.OLD
    is_other = claim.number == row["report_number"] and not is_token_known
    return Verdict.CONFLICT if is_other else Verdict.ACCEPTED


def _judge_other_process(row: MachineRow, claim: Claim, *, is_token_known: bool) -> Verdict:
    """Return what a report of a process is that has no accepted report, or had the last one."""
    assert row["report_start"] is not None
    if claim.start <= row["report_start"]:
        return Verdict.OLD
    is_other = None not in {row["machine_id"], claim.machine_id} and (
        row["machine_id"] != claim.machine_id
    )
    if is_other or claim.has_rival:
        return Verdict.CONFLICT
    # A journal that is not older knows how many processes there were: none is answered as old.
    is_continued = is_token_known and not claim.is_repeated
    if row["boot_id"] == claim.boot_id:
        return Verdict.ACCEPTED if is_continued else Verdict.JOURNAL_LOST
    is_without_journal = claim.previous is None and claim.machine_id is not None
    return Verdict.RESTARTED if is_continued or is_without_journal else Verdict.CONFLICT


def get_origin(row: MachineRow) -> str | None:
    """Return what is stored with a device that the accepted machine reports now."""
    return row["boot_id"] and f"{row['boot_id']}:{row['journal_losses'] or 0}"


def get_boot(origin: str) -> str:
    """Return the boot id in what is stored with a device, as of :func:`get_origin`."""
    return origin.removeprefix(REMOVED).rpartition(":")[0]


def check_proof(row: MachineRow, origin: str | None) -> None:
    """Check that the report of the accepted machine proves that a device is gone.

    :param origin: as of :func:`get_origin`, when the device was reported; None: not known
    :raises Conflict: it does not
    """
    if origin is not None and origin.removeprefix(REMOVED) == get_origin(row):
        return
    if origin is not None and origin.startswith(REMOVED):
        raise exception.Conflict(
            reason=f"The agent of host {row['host']} was removed by force and registered again "
            "since the device was made, such as on another machine: that it has none proves "
            "nothing. Check that the device is gone and run: attachd-manage agent accept "
            f"{row['host']} --boot {row['boot_id']} --devices-gone"
        )
    if origin is not None and get_boot(origin) == row["boot_id"]:
        raise exception.Conflict(
            reason=f"The agent of host {row['host']} has lost its journal, or has an older one, "
            "since the device was made: that it has none proves nothing. Start the host again, or "
            "check that the device is gone and run: attachd-manage agent accept "
            f"{row['host']} --boot {row['boot_id']} --devices-gone"
        )
    if (wait := get_wait(row)) > 0:
        raise exception.Conflict(
            reason=f"Host {row['host']} was started again, which counts as proof when its former "
            f"start has not reported for {CONF.agent.down_time} s: repeat the request in "
            f"{wait:.0f} s."
        )


def get_wait(row: MachineRow) -> float:
    """Return how many seconds it takes until a restart of a machine is a proof; 0: it is one.

    If it was not started again, but copied, the other machine reports by then.
    """
    if row["former_boot_at"] is None:
        return 0.0
    silent = _seconds_since(row["former_boot_at"])
    return max(0.0, float(CONF.agent.down_time) - silent)


def check_caller(row: MachineRow, process: str) -> None:
    """Check that a call comes from the process whose report was accepted.

    :raises AgentConflict: two machines report for the host
    :raises ProcessNotAccepted: it is another process
    """
    check_single(row)
    if row["report_process"] != process:
        raise exception.ProcessNotAccepted(host=row["host"])


def check_single(row: MachineRow) -> None:
    """Check that one machine reports for a host.

    :raises AgentConflict: two do
    """
    other = row["conflict"]
    if other is not None:
        raise exception.AgentConflict(
            host=row["host"],
            boot_id=row["boot_id"],
            other_boot_id=other["boot_id"],
            since=other["since"],
        )


# ---- Rows ----


@retried
def read(host: str, digest: str) -> MachineRow:
    """Return what is stored about the machine of a host, and check the key.

    :param digest: of the key
    :raises AgentNotFound: the host is not registered
    :raises Forbidden: the host has another key
    """
    with session.reader() as connection:
        row = _READ.fetch_one(connection, {"match_host": host})
    if row is None:
        raise exception.AgentNotFound(host=host)
    if not hmac.compare_digest(row["key_digest"], digest):
        raise exception.Forbidden(
            f"Host {host} is registered with another key. If that agent does not exist any more, "
            f"an administrator deletes it: attachd-manage agent remove {host}"
        )
    return row


def is_unchanged(row: MachineRow) -> sa.ColumnElement[bool]:
    """Return whether no report of the host was stored since a row was read."""
    same = (_AGENTS.c[name].is_not_distinct_from(row[name]) for name in ORDER)
    return sa.and_(_AGENTS.c.host == row["host"], *same)


def is_current(row: MachineRow, claim: Claim, content_number: int) -> bool:
    """Return whether what is stored of a host is what an earlier report of a process had.

    :param row: of the host, as of :func:`read`
    :param content_number: of that report
    """
    return (
        row["report_process"] == claim.process
        and row["content_number"] == content_number
        and row["conflict"] is None
    )


def accept(row: MachineRow, claim: Claim) -> AcceptedReport:
    """Return what is to be stored with a report that is accepted.

    :param row: of the host
    :raises OldReport: it is older than the accepted one
    :raises MachineRefused: an administrator has refused its machine
    :raises AgentConflict: it is another machine's; that is stored
    :raises EarlyRestart: it was started again so soon that it may be a copy of one that runs
    :raises Changed: another report was stored meanwhile
    """
    if claim.boot_id in (row["refused_boots"] or ()):
        raise exception.MachineRefused(host=row["host"], boot_id=claim.boot_id)
    verdict = judge(row, claim)
    if verdict is Verdict.OLD:
        _record_former_start(row, claim)
        raise exception.OldReport(host=row["host"], start=row["report_start"])
    if verdict is Verdict.CONFLICT:
        check_single({**row, "conflict": _record_conflict(row, claim)})
    if verdict is Verdict.RESTARTED and row["report_token"] is not None:
        _check_former_start(row)
    return get_values(row, claim, verdict)


def _check_former_start(row: MachineRow) -> None:
    """Check that the former start of a machine is silent: else this is a copy of the machine.

    :raises EarlyRestart: it has reported a moment ago
    """
    assert row["heartbeat_at"] is not None
    silent = _seconds_since(row["heartbeat_at"])
    needed = CONF.agent.report_interval * SILENT_INTERVALS
    if silent < needed:
        raise exception.EarlyRestart(
            host=row["host"],
            silent=f"{silent:.1f}",
            boot_id=row["boot_id"],
            needed=f"{needed:.1f}",
            report=f"{row['report_process']}:{row['report_number']}",
        )


def _record_former_start(row: MachineRow, claim: Claim) -> None:
    """Store that the former start of a machine still reports, though it may get no answer."""
    is_same_boot = claim.boot_id == row["boot_id"]
    is_other_process = is_same_boot and claim.process != row["report_process"]
    if is_other_process or (not is_same_boot and row["former_boot_at"] is not None):
        stored = sa.update(_AGENTS).where(is_unchanged(row))
        session.write(stored.values(former_boot_at=models.now()))


def _seconds_since(moment: datetime.datetime) -> float:
    return (models.now() - moment).total_seconds()


def get_values(row: MachineRow, claim: Claim, verdict: Verdict) -> AcceptedReport:
    """Return what is to be stored of a report that is accepted."""
    values: AcceptedReport = {
        "boot_id": claim.boot_id,
        "machine_id": claim.machine_id,
        "report_token": claim.next,
        "report_process": claim.process,
        "report_start": claim.start,
        "report_number": claim.number,
    }
    if verdict is Verdict.RESTARTED:
        # Reports of a start before that one may have arrived later.
        moments = [known for known in (row["former_boot_at"], row["heartbeat_at"]) if known]
        values["former_boot_at"] = max(moments, default=None)
    if verdict is Verdict.JOURNAL_LOST:
        values["journal_losses"] = (row["journal_losses"] or 0) + 1
    return values


def _record_conflict(row: MachineRow, claim: Claim) -> dict[str, Any]:
    """Store that another machine reports for a host; return what is stored.

    :raises Changed: another report was stored meanwhile
    """
    other = {**claim._asdict(), "since": f"{models.now():%Y-%m-%d %H:%M:%S} UTC"}
    other = {**other, "since": (row["conflict"] or other)["since"]}
    former = row["conflict"] or {}
    varying = {"number", "is_repeated"}
    if any(former.get(name) != other[name] for name in other.keys() - varying):
        stored = sa.update(_AGENTS).where(is_unchanged(row)).values(conflict=other)
        if session.write(stored) != 1:
            raise Changed
        if row["conflict"] is None:
            LOG.error(
                "Host %s: two machines report as its agent: boot %s of machine %s, and boot %s of "
                "machine %s",
                row["host"],
                row["boot_id"],
                row["machine_id"],
                claim.boot_id,
                claim.machine_id,
            )
    return other

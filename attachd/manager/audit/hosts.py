# SPDX-License-Identifier: Apache-2.0
"""Compare attachments with the devices that the agents of hosts report.

A report is a little older than the rows that it is compared with.  So a difference counts only if
the next report of that host shows it again, for an attachment that has not changed meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
import dataclasses
import datetime
import time
from typing import Final, NamedTuple

from attachd import host_identity
from attachd.conf import CONF
from attachd.db import audit
from attachd.db.agents import agent_store, observed_devices
from attachd.db.agents.observed_devices import AgentIndex, Device
from attachd.db.row_types import AgentRow, AttachmentRow
from attachd.host_identity import HostIdentity
from attachd.manager.audit.rules import MEANINGS, Difference, Finding, Kind
from attachd.manager.backends import Backend
from attachd.states import INACTIVE, AttachmentState

_POLL_INTERVAL = 0.5
_REPORT_INTERVALS = 3
"""How many intervals between reports to wait for the next report."""
_WITHOUT_DEVICE: Final = INACTIVE | {AttachmentState.RESERVED, AttachmentState.HELD}
"""The states in which a host surely has no device."""


class HostResult(NamedTuple):
    """The result of the comparison with hosts.

    :ivar not_compared: the hosts without a recent report, or with one that leaves out what others
        have made, each in a sentence with the reason
    """

    differences: list[Difference]
    not_compared: list[str]


class _Suspicion(NamedTuple):
    """A possible difference; it is confirmed by an equal one from the next report."""

    host: str
    volume_id: str
    finding: Finding
    changed_at: datetime.datetime | None


class _Reports:
    """The last reports of agents that are alive, with their devices by volume.

    :ivar hosts: of these agents
    :ivar made: the devices that agents have made, by host and attachment
    :ivar made_of: the same by volume, each with its host
    :ivar others: the agents that report devices that they have not made
    :ivar others_of: these devices by volume, each with its host
    :ivar not_observing: the agents that do not
    """

    def __init__(self, rows: Iterable[AgentRow]) -> None:
        alive = [row for row in rows if row["alive"]]
        observing = [row for row in alive if row["observed"] is not None]
        self.hosts = {row["host"] for row in alive}
        self.made: dict[tuple[str, str], Device] = {}
        self.made_of = defaultdict[str, list[tuple[str, Device]]](list)
        for row in alive:
            devices: list[Device] = [*(row["devices"] or ())]
            for device in devices:
                self.made[row["host"], device["attachment_id"]] = device
                self.made_of[device["volume_id"]].append((row["host"], device))
        self.others = AgentIndex(observing)
        self.others_of = defaultdict[str, list[tuple[str, Device]]](list)
        for row in observing:
            for device in observed_devices.list_devices(row):
                self.others_of[device["volume_id"]].append((row["host"], device))
        self.not_observing = AgentIndex(row for row in alive if row["observed"] is None)


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """What a comparison of reports with the rows shows.

    :ivar used: the hosts with attachments that an agent makes
    :ivar without_others: the hosts that should have devices of others, which their agents do not
        report
    """

    suspicions: set[_Suspicion] = dataclasses.field(default_factory=set)
    used: set[str] = dataclasses.field(default_factory=set)
    without_others: set[str] = dataclasses.field(default_factory=set)


def compare(backend: Backend) -> HostResult:
    """Find devices that are missing at hosts with an agent, and devices without an attachment.

    Those of Compute are among them, as far as agents report them.  Nothing is repaired: an agent
    repairs its devices with each report, and if it cannot, the reason is at the host.

    :raises Unavailable: the database does not answer
    """
    known = {row["host"]: row for row in agent_store.list_all()}
    first = _compare_reports(backend, known.values())
    away = {host for host in first.used if host not in known or not known[host]["alive"]}
    suspicions = first.suspicions
    if suspicions:
        last_reports = {
            suspicion.host: known[suspicion.host]["seen_at"] for suspicion in suspicions
        }
        _wait_until(lambda: not _silent_since(last_reports))
        away |= (silent := _silent_since(last_reports))
        next_reports = agent_store.list_named(last_reports.keys() - silent)
        suspicions &= _compare_reports(backend, next_reports).suspicions
    return HostResult(
        [
            _difference(backend, suspicion)
            for suspicion in sorted(suspicions, key=lambda one: one[:3])
        ],
        [
            *(_no_report(host, known.get(host)) for host in sorted(away)),
            *(_without_others(host) for host in sorted(first.without_others)),
        ],
    )


def _compare_reports(backend: Backend, rows: Iterable[AgentRow]) -> _Comparison:
    """Compare the reports of agents with the rows as they are now, in pages of volumes."""
    reports, found = _Reports(rows), _Comparison()
    for page in audit.list_pages(backend.host):
        found.suspicions.update(_compare_made(reports, page))
        found.suspicions.update(_compare_others(backend, reports, page))
        for row in page.attachments:
            if row["agent"]:
                found.used.add(row["agent"])
            if _is_of_other(row) and (agent := reports.not_observing.find(_identity(row))):
                found.without_others.add(agent["host"])
    return found


def _identity(row: AttachmentRow) -> HostIdentity:
    return host_identity.of_row({**row})


def _is_of_other(row: AttachmentRow) -> bool:
    """Return whether the host of an attachment should have a device that no agent makes."""
    is_used = row["state"] == AttachmentState.ATTACHED and row["connector"] is not None
    return is_used and row["agent"] is None


def _compare_made(reports: _Reports, page: audit.Page) -> Iterator[_Suspicion]:
    """Compare what agents have made with the rows."""
    for row in page.attachments:
        host = row["agent"]
        if host in reports.hosts and row["state"] == AttachmentState.ATTACHED:
            yield from _missing(host, row, reports.made.get((host, row["id"])))
    attachments = {row["id"] for row in page.attachments}
    for volume_id in page.volumes:
        for host, device in reports.made_of.get(volume_id, ()):
            attachment_id, path = device["attachment_id"], device["path"]
            if path and attachment_id not in attachments:
                text = f"Host {host} has {path} of attachment {attachment_id}."
                yield _Suspicion(host, volume_id, (Kind.ORPHAN_DEVICE, text), None)


def _compare_others(backend: Backend, reports: _Reports, page: audit.Page) -> Iterator[_Suspicion]:
    """Compare what others have made with the rows.

    A device that is missing is one only where each host has one of its kernel.
    """
    may_have = set[tuple[str, str]]()
    for row in page.attachments:
        report = reports.others.find(_identity(row))
        if report is None:
            continue
        volume_id = row["volume_id"]
        if AttachmentState(row["state"]) not in _WITHOUT_DEVICE:
            may_have.add((report["host"], volume_id))
        device = observed_devices.find_device(report, volume_id, {row["id"]})
        is_known = backend.driver.KERNEL_DEVICES and observed_devices.shows_all(report, volume_id)
        is_missing = device is None or device["path"] is None
        if _is_of_other(row) and is_known and is_missing:
            text = f"Host {report['host']} has no device of attachment {row['id']}."
            yield _Suspicion(
                report["host"], volume_id, (Kind.UNUSED_ATTACHMENT, text), row["updated_at"]
            )
    for volume_id in page.volumes:
        for host, device in reports.others_of.get(volume_id, ()):
            if (path := device["path"]) and (host, volume_id) not in may_have:
                text = f"Host {host} has {path} of the volume, by no attachment."
                yield _Suspicion(host, volume_id, (Kind.STRAY_DEVICE, text), None)


def _missing(host: str, row: AttachmentRow, device: Device | None) -> Iterator[_Suspicion]:
    if device is None or device["path"] is None:
        text = f"Host {host} has no device of attachment {row['id']}."
        finding = Kind.MISSING_DEVICE, text
        yield _Suspicion(host, row["volume_id"], finding, row["updated_at"])


def _silent_since(before: Mapping[str, datetime.datetime | None]) -> set[str]:
    current = agent_store.list_seen_at(before.keys())
    return {host for host, seen_at in before.items() if current.get(host, seen_at) == seen_at}


def _wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _REPORT_INTERVALS * CONF.agent.report_interval
    while not is_true() and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)


def _difference(backend: Backend, suspicion: _Suspicion) -> Difference:
    kind, text = suspicion.finding
    return Difference(kind, backend.host, suspicion.volume_id, text, MEANINGS[kind].action)


def _without_others(host: str) -> str:
    return f"Host {host}: its agent does not report devices that Compute or others have made."


def _no_report(host: str, row: AgentRow | None) -> str:
    if row is None or row["seen_at"] is None:
        return f"Host {host}: its agent has never reported."
    return f"Host {host}: its agent has not reported since {row['seen_at']}."

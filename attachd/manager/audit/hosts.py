# SPDX-License-Identifier: Apache-2.0
"""Compare attachments with the devices that the agents of hosts report.

A report is a little older than the rows that it is compared with.  So a difference counts only if
the next report of that host shows it again, for an attachment that has not changed meanwhile.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
import datetime
import time
from typing import Any, Final, NamedTuple

from attachd import host_identity
from attachd.conf import CONF
from attachd.db import audit
from attachd.db.agents import agent_store, observed_devices
from attachd.db.agents.observed_devices import AgentIndex
from attachd.db.row_types import AgentRow, AttachmentRow
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


def compare(backend: Backend) -> HostResult:
    """Find devices that are missing at hosts with an agent, and devices without an attachment.

    Those of Compute are among them, as far as agents report them.  Nothing is repaired: an agent
    repairs its devices with each report, and if it cannot, the reason is at the host.

    :raises Unavailable: the database does not answer
    """
    known = {row["host"]: row for row in agent_store.list_all()}
    attachments = audit.list_attachments(backend.host)
    used = {row["agent"] for row in attachments if row["agent"]}
    away = {host for host in used if host not in known or not known[host]["alive"]}
    suspicions = set(_suspicions(backend, known.values()))
    if suspicions:
        last_reports = {
            suspicion.host: known[suspicion.host]["seen_at"] for suspicion in suspicions
        }
        _wait_until(lambda: not _silent_since(last_reports))
        away |= (silent := _silent_since(last_reports))
        next_reports = [row for row in agent_store.list_all() if row["host"] not in silent]
        suspicions &= set(_suspicions(backend, next_reports))
    return HostResult(
        [
            _difference(backend, suspicion)
            for suspicion in sorted(suspicions, key=lambda one: one[:3])
        ],
        [
            *(_no_report(host, known.get(host)) for host in sorted(away)),
            *(_without_others(host) for host in _list_without_others(known.values(), attachments)),
        ],
    )


def _list_without_others(
    agents: Iterable[AgentRow], attachments: Iterable[AttachmentRow]
) -> list[str]:
    """Return the hosts whose agents do not report devices of others, which they should have."""
    index = AgentIndex(row for row in agents if row["alive"] and row["observed"] is None)
    found = (index.find(host_identity.of_row({**row})) for row in attachments if _is_of_other(row))
    return sorted({row["host"] for row in found if row})


def _is_of_other(row: AttachmentRow) -> bool:
    """Return whether the host of an attachment should have a device that no agent makes."""
    is_used = row["state"] == AttachmentState.ATTACHED and row["connector"] is not None
    return is_used and row["agent"] is None


def _suspicions(backend: Backend, reports: Collection[AgentRow]) -> Iterator[_Suspicion]:
    """Compare each report with the rows as they are now."""
    rows = {row["id"]: row for row in audit.list_attachments(backend.host)}
    volumes = {row["id"] for row in audit.list_volumes(backend.host)}
    for report in reports:
        if not report["alive"]:
            continue
        host = report["host"]
        devices = {device["attachment_id"]: device for device in report["devices"] or ()}
        for row in rows.values():
            if row["agent"] == host and row["state"] == AttachmentState.ATTACHED:
                yield from _missing(host, row, devices.get(row["id"]))
        for attachment_id, device in devices.items():
            if attachment_id not in rows and device["path"] and device["volume_id"] in volumes:
                text = f"Host {host} has {device['path']} of attachment {attachment_id}."
                finding = Kind.ORPHAN_DEVICE, text
                yield _Suspicion(host, device["volume_id"], finding, None)
    observing = [row for row in reports if row["alive"] and row["observed"] is not None]
    yield from _suspicions_of_others(backend, observing, rows.values(), volumes)


def _suspicions_of_others(
    backend: Backend,
    reports: Sequence[AgentRow],
    rows: Collection[AttachmentRow],
    volumes: Collection[str],
) -> Iterator[_Suspicion]:
    """Compare what others have made with the rows.

    A device that is missing is one only where each host has one of its kernel.
    """
    index = AgentIndex(reports)
    may_have = set[tuple[str, str]]()
    for row in rows:
        report = index.find(host_identity.of_row({**row}))
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
    for report in reports:
        for device in observed_devices.list_devices(report):
            volume_id, path = device["volume_id"], device["path"]
            if path and volume_id in volumes and (report["host"], volume_id) not in may_have:
                text = f"Host {report['host']} has {path} of the volume, by no attachment."
                yield _Suspicion(report["host"], volume_id, (Kind.STRAY_DEVICE, text), None)


def _missing(host: str, row: AttachmentRow, device: dict[str, Any] | None) -> Iterator[_Suspicion]:
    if device is None or device["path"] is None:
        text = f"Host {host} has no device of attachment {row['id']}."
        finding = Kind.MISSING_DEVICE, text
        yield _Suspicion(host, row["volume_id"], finding, row["updated_at"])


def _silent_since(before: Mapping[str, datetime.datetime | None]) -> set[str]:
    current = {row["host"]: row["seen_at"] for row in agent_store.list_all()}
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

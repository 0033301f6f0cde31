# SPDX-License-Identifier: Apache-2.0
"""Compare attachments with what the agents of hosts say of their devices; for audit.py.

A report is a little older than the rows that it is compared with.  So a difference is one only if
the next report of that host says so again, of an attachment that nobody has moved meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import datetime
import time
from typing import NamedTuple

from attachd.conf import CONF
from attachd.db import audit as db
from attachd.db.agents import store as agents
from attachd.manager.audit.rules import MEANINGS, Difference, Found, Kind
from attachd.manager.backends import Backend
from attachd.states import AttachmentState

_NAP = 0.5
_REPORTS = 3
"""How many intervals between reports the next one is waited for."""


class Verdict(NamedTuple):
    """What was found out about hosts.

    :ivar not_compared: whose devices nobody knows, and why, each in a sentence
    """

    differences: list[Difference]
    not_compared: list[str]


class _Suspicion(NamedTuple):
    """Two reports that say the same of the same row are believed."""

    host: str
    volume_id: str
    found: Found
    touched: datetime.datetime | None


def compare(backend: Backend) -> Verdict:
    """Find devices that are lacking at hosts with an agent, and those that nobody wants there.

    Nothing is repaired: an agent does that by itself with each report, and where it cannot, the
    reason is at the host.

    :raises Unavailable: the database does not answer
    """
    known = {row["host"]: row for row in agents.list_all()}
    wanted = {row["agent"] for row in db.list_attachments(backend.host) if row["agent"]}
    away = {each for each in wanted if each not in known or not known[each]["alive"]}
    suspicions = set(_suspicions(backend, known.values()))
    if suspicions:
        heard = {each.host: known[each.host]["seen_at"] for each in suspicions}
        _wait_until(lambda: not _silent_since(heard))
        away |= (silent := _silent_since(heard))
        again = [row for row in agents.list_all() if row["host"] not in silent]
        suspicions &= set(_suspicions(backend, again))
    return Verdict(
        [_difference(backend, each) for each in sorted(suspicions, key=lambda one: one[:3])],
        [_unheard(each, known.get(each)) for each in sorted(away)],
    )


def _suspicions(backend: Backend, reports: Iterable[agents.Row]) -> Iterator[_Suspicion]:
    """Compare each report with the rows as they are now."""
    rows = {row["id"]: row for row in db.list_attachments(backend.host)}
    volumes = {row["id"] for row in db.list_volumes(backend.host)}
    for report in reports:
        if not report["alive"]:
            continue
        devices = {each["attachment_id"]: each for each in report["devices"] or ()}
        for row in rows.values():
            if row["agent"] == report["host"] and row["state"] == AttachmentState.ATTACHED:
                yield from _lacking(row, devices.get(row["id"]))
        for attachment_id, each in devices.items():
            if attachment_id not in rows and each["path"] and each["volume_id"] in volumes:
                what = f"Host {report['host']} has {each['path']} of attachment {attachment_id}."
                found = Kind.LEFTOVER_DEVICE, what
                yield _Suspicion(report["host"], each["volume_id"], found, None)


def _lacking(row: db.Row, device: agents.Row | None) -> Iterator[_Suspicion]:
    if device is None or device["path"] is None:
        what = f"Host {row['agent']} has no device of attachment {row['id']}."
        touched = row["updated_at"]
        yield _Suspicion(row["agent"], row["volume_id"], (Kind.MISSING_DEVICE, what), touched)


def _silent_since(before: Mapping[str, datetime.datetime]) -> set[str]:
    now = {row["host"]: row["seen_at"] for row in agents.list_all()}
    return {host for host, seen_at in before.items() if now.get(host, seen_at) == seen_at}


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _REPORTS * CONF.agent.report_interval
    while not true() and time.monotonic() < deadline:
        time.sleep(_NAP)


def _difference(backend: Backend, each: _Suspicion) -> Difference:
    kind, what = each.found
    return Difference(kind, backend.host, each.volume_id, what, MEANINGS[kind].action)


def _unheard(host: str, row: agents.Row | None) -> str:
    since = "since ever" if row is None or row["seen_at"] is None else f"since {row['seen_at']}"
    return f"Host {host}: its agent has not been heard of {since}."

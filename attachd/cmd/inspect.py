# SPDX-License-Identifier: Apache-2.0
"""attachd-manage attachment, volume, process and service: show rows; read by manage.py.

For operators with a shell and without the API: they change nothing and show no secrets.
"""

import argparse
from collections.abc import Callable
import datetime
from typing import Any, Final

from attachd import durations, states
from attachd.cmd import output
from attachd.conf import CONF
from attachd.db import inspect, models
from attachd.db.cluster import members, services
from attachd.db.row_types import AttachmentRow, ServiceRow

Row = dict[str, Any]

_ATTACHMENT: Final = ("id", "volume_id", "host", "state", "kind", "changed_at", "error")
_PROCESS: Final = ("id", "name", "state", "started_at", "seen_at", "leases")
_SERVICE: Final = ("host", "state", "enabled", "frozen", "seen_at", "error")
_OF_A_SERVICE: Final = ("rpc_version", "disabled_reason", "availability_zone")
_LONGEST_NUMBER: Final = 10
_HIDDEN: Final = frozenset({"provider", "provider_secrets", "admin_metadata"})


def add_commands(subjects: Any) -> None:
    """Add the commands to the parser of attachd-manage."""
    attachment = output.add_subject(
        subjects, "attachment", "attachments of every kind, as they are stored"
    )
    _add_filters(_listing(attachment, _list_attachments, "list them, oldest first"))
    _showing(attachment, _show_attachment, "show one", "ATTACHMENT")
    volume = output.add_subject(subjects, "volume", "volumes as they are stored")
    _showing(
        volume,
        _show_volume,
        "show one, who works on it, and its attachments",
        "VOLUME",
        "its ID or name",
    )
    process = output.add_subject(subjects, "process", "the manager processes")
    _listing(process, _list_processes, "list them, and on how many volumes each works")
    service = output.add_subject(subjects, "service", "the backends, as managers report them")
    _listing(service, _list_services, "list them, and how they are")


def _listing(actions: Any, action: Callable[[], None], text: str) -> argparse.ArgumentParser:
    parser = output.add_action(actions, "list", action, text)
    output.add_format(parser)
    return parser


def _showing(
    actions: Any, action: Callable[[], None], text: str, metavar: str, of_identity: str = "its ID"
) -> None:
    parser = output.add_action(actions, "show", action, text)
    parser.add_argument("identity", metavar=metavar, help=of_identity)
    output.add_format_of_one(parser)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    # "host" and "state" might be options of the configuration.
    parser.add_argument(
        "--host", dest="at_host", metavar="NAME", help="only those at a host, or of its agent"
    )
    parser.add_argument("--volume", dest="of_volume", metavar="ID", help="only those of a volume")
    parser.add_argument(
        "--state",
        dest="in_states",
        type=_states,
        metavar="STATE",
        help="only those of a state, such as connecting, or a status, such as attaching",
    )
    for name, text in (
        ("--older-than", "only those made 2h ago or earlier"),
        ("--unchanged-for", "only those of which nothing was stored for 30m or longer"),
    ):
        parser.add_argument(name, type=durations.age, metavar="AGE", help=text)
    parser.add_argument(
        "--limit", dest="at_most", type=_number, metavar="NUMBER", help="not more than so many"
    )


def _states(text: str) -> frozenset[states.AttachmentState]:
    found = {state for state in states.AttachmentState if text in {state.value, state.wire}}
    if not found:
        known = sorted({name for state in states.AttachmentState for name in (state, state.wire)})
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
    return frozenset(found)


def _number(text: str) -> int:
    short = len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdecimal()
    if not (short and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def _list_attachments() -> None:
    asked = CONF.subject
    filters = inspect.AttachmentFilters(
        asked.at_host,
        asked.of_volume,
        asked.in_states,
        _ago(asked.older_than),
        _ago(asked.unchanged_for),
        asked.at_most,
    )
    rows = [_attachment(row) for row in inspect.list_attachments(filters)]
    output.print_rows(rows, _ATTACHMENT, asked.format)


def _ago(age: datetime.timedelta | None) -> datetime.datetime | None:
    return None if age is None else models.now() - age


def _attachment(row: AttachmentRow) -> Row:
    status = states.AttachmentState(row["state"]).wire
    return {**row, "status": status, "changed_at": row["updated_at"] or row["created_at"]}


def _show_attachment() -> None:
    found = _attachment(inspect.get_attachment(CONF.subject.identity))
    if CONF.subject.format == "json":
        output.print_json(found)
    else:
        output.print_one(found)


def _show_volume() -> None:
    row = inspect.get_volume(CONF.subject.identity)
    found = {name: value for name, value in row.items() if name not in _HIDDEN}
    filters = inspect.AttachmentFilters(volume_id=row["id"])
    attachments = [_attachment(attachment) for attachment in inspect.list_attachments(filters)]
    if CONF.subject.format == "json":
        output.print_json({**found, "attachments": attachments})
        return
    if row["lease_holder"] and not row["lease_holder_name"]:
        found["lease_holder_name"] = "(dead)"
    output.print_one(found)
    if attachments:
        print()
        output.print_rows(attachments, _ATTACHMENT, "table")


def _list_processes() -> None:
    leases = inspect.list_leases()
    rows = []
    for row in members.list_living():
        volume_ids = leases.pop(row["id"], [])
        rows.append(
            {**row, "state": "alive", "leases": len(volume_ids), "volumes": " ".join(volume_ids)}
        )
    for holder, volume_ids in leases.items():
        unknown = dict.fromkeys(("name", "started_at", "seen_at"))
        dead = {"id": holder, **unknown, "state": "dead"}
        rows.append({**dead, "leases": len(volume_ids), "volumes": " ".join(volume_ids)})
    output.print_rows(rows, _PROCESS, CONF.subject.format)


def _list_services() -> None:
    rows = [_service(row) for row in services.page({})]
    output.print_rows(rows, _SERVICE, CONF.subject.format)


def _service(row: ServiceRow) -> Row:
    return {
        "host": row["host"],
        "state": _state(row),
        "enabled": not row["disabled"],
        "frozen": row["frozen"],
        "seen_at": row["seen_at"],
        "error": row["error"],
        **{name: row[name] for name in _OF_A_SERVICE},
    }


def _state(row: ServiceRow) -> str:
    """Return the state of a backend in a word: "up", "broken" as its manager says, or "down"."""
    if not row["alive"]:
        return "down"
    return "up" if row["up"] else "broken"

# SPDX-License-Identifier: Apache-2.0
"""Commands for events of attachments: the timeline of one, or a watch of all.

They work with attachd only: other services have no events.
"""

import argparse
from collections.abc import Iterator, Sequence
import functools
import http
import json
import math
import re
from typing import Any, Final

from cliff import columns
from openstack import exceptions
from oslo_utils import uuidutils

from attachd.cli import formatting
from attachd.cli.blockstorage import BlockStorage, Event
from attachd.cli.commands import Command, Lister
from attachd.cli.options import Option, option
from attachd.cli.table_layout import Layout
from attachd.cli.watch import EventWatcher, WatchTimeout

DELETED: Final = "deleted"
TYPES: Final = (
    "reserved",
    "connecting",
    "connected",
    "attached",
    "withdrawing",
    "detach_refused",
    "disconnecting",
    DELETED,
    "fenced",
    "move_finished",
    "connect_failed",
    "connect_unknown",
    "disconnect_failed",
    "condition_changed",
)
"""Types of events."""
TIMED_OUT: Final = 1
HISTORY_REMOVED: Final = 3
"""Exit code if the events since a revision are purged."""

_PLAIN: Final = re.compile(r"[\w.:@/+-]+", re.ASCII)
_COLUMNS: Final = {
    "When": "occurred_at",
    "Type": "type",
    "Status": "status",
    "Who": "user_id",
    "Seconds": "seconds",
    "Steps": "steps",
    "Host": "host",
}
_INTERNALS: Final = {"Agent": "agent", "Process": "process", "Error": "error"}
_LONG: Final = {
    "Began At": "began_at",
    "Request ID": "request_id",
    "Global Request ID": "global_request_id",
    "Instance ID": "instance_uuid",
    "Revision": "revision",
}
_LINE: Final = {
    "attachment": "attachment_id",
    "volume": "volume_id",
    "host": "host",
    "seconds": "seconds",
    "error": "error",
}


def seconds(text: str) -> float:
    """Parse a number of seconds; a type for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def revision(text: str) -> int:
    """Parse a revision; a type for argparse."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no revision: a number such as 4711")
    return int(text)


_TIMELINE: Final = (
    Option(("attachment",), {"metavar": "ATTACHMENT", "help": "ID of the attachment"}),
    option("--long", action="store_true", help="show also the requests and the revisions"),
)
_WATCH: Final = (
    option("--attachment-id", "--attachment", metavar="ID", help="only of an attachment"),
    option("--volume", "--volume-id", metavar="VOLUME", help="only of a volume (name or ID)"),
    option("--all-projects", action="store_true", help="of all projects (admin only)"),
    option(
        "--since",
        type=revision,
        metavar="REVISION",
        help="begin with what has happened since; default: with what happens from now on",
    ),
    option(
        "--until",
        action="append",
        choices=TYPES,
        default=[],
        metavar="TYPE",
        help="end when something of this type has happened, such as attached; may be repeated",
    ),
    # --timeout is taken: it is that of each request, an option of the cloud.
    option("--within", type=seconds, metavar="SECONDS", help="end after so long"),
    option(
        "-f",
        "--format",
        choices=("line", "json"),
        default="line",
        help="a line of words for each event, or one of JSON; default: line",
    ),
)


class Steps(columns.FormattableColumn[list[dict[str, Any]]]):
    """Steps of an operation: words for people, a list for programs."""

    def human_readable(self) -> str:
        """Return them in a line."""
        return ", ".join(
            f"{step['name']} {step['seconds']}{' (failed)' if step['failed'] else ''}"
            for step in self.machine_readable()
        )


class ShowTimeline(Lister):
    """Show all events of an attachment, oldest first, also after its deletion.

    Administrators also see the agent, the process and errors of the storage.
    """

    arguments = _TIMELINE
    layout = Layout((), ("Process", "Agent", "Host", "Who", "Steps"))
    long_layout = Layout(
        (),
        (
            *("Global Request ID", "Instance ID", "Began At", "Process", "Agent", "Who"),
            *("Steps", "Host", "Revision", "Request ID"),
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Return the events."""
        found = BlockStorage(self.connection).timeline(parsed_args.attachment)
        columns = {**_COLUMNS, **(_LONG if parsed_args.long else {})}
        if any("process" in event for event in found):
            columns |= _INTERNALS
        rows = [
            {
                **event,
                "occurred_at": formatting.Time(event["occurred_at"]),
                "steps": Steps(event["steps"]),
            }
            for event in found
        ]
        return formatting.listed(rows, columns)


class WatchAttachments(Command):
    """Print events of attachments as they happen, a line each.

    It continues when the API is restarted. Ctrl-C ends it.
    """

    arguments = _WATCH

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print the events; return the exit code."""
        try:
            return self._watch(parsed_args)
        except WatchTimeout:
            if not parsed_args.until:
                return 0
            expected = " or ".join(parsed_args.until)
            return self._complain(
                TIMED_OUT, f"Not {expected} within {parsed_args.within:g} seconds."
            )
        except exceptions.HttpException as error:
            if error.status_code != http.HTTPStatus.GONE:
                raise
            return self._complain(HISTORY_REMOVED, f"{error.details}")

    def _watch(self, parsed: argparse.Namespace) -> int:
        if parsed.until and self.app.stderr.isatty():
            limit = f", for {parsed.within:g} s at most" if parsed.within else ""
            self.app.stderr.write(
                f"Waiting for {' or '.join(parsed.until)}{limit}. Ctrl-C ends the watch and "
                "changes nothing.\n"
            )
        for event in _events(BlockStorage(self.connection), parsed):
            self._print(event, as_json=parsed.format == "json")
            if event["type"] in parsed.until:
                return 0
            if _is_last(event, parsed):
                return self._ended(parsed.until)
        raise WatchTimeout

    def _ended(self, until: Sequence[str]) -> int:
        """Return the exit code if no further event can come."""
        if not until:
            return 0
        return self._complain(1, f"It is deleted, and will not be {' or '.join(until)}.")

    def _print(self, event: Event, *, as_json: bool) -> None:
        self.app.stdout.write(f"{json.dumps(event) if as_json else line(event)}\n")
        self.app.stdout.flush()

    def _complain(self, code: int, message: str) -> int:
        self.app.stderr.write(f"{message}\n")
        return code


def _events(storage: BlockStorage, parsed: argparse.Namespace) -> Iterator[Event]:
    """Yield the events to print."""
    watcher = EventWatcher(storage, parsed.within)
    volume_id = parsed.volume
    if volume_id is not None and not _is_id(volume_id):
        find = functools.partial(storage.volume_id, all_projects=parsed.all_projects)
        volume_id = watcher.retry(functools.partial(find, volume_id))
    asked = {
        "volume_id": volume_id,
        "attachment_id": parsed.attachment_id,
        "all_tenants": "1" if parsed.all_projects else None,
    }
    query = {name: value for name, value in asked.items() if value is not None}
    since = parsed.since
    if since is None:
        since = watcher.now()
        if parsed.attachment_id is not None:
            ask = functools.partial(_latest, storage, parsed.attachment_id)
            yield from (event for event in watcher.retry(ask) if _is_awaited(event, parsed))
    yield from watcher.since(since, query)


def _is_id(volume: str) -> bool:
    """Return whether a text is an ID; a deleted volume is found by its ID only."""
    return "-" in volume and uuidutils.is_uuid_like(volume)


def _latest(storage: BlockStorage, attachment_id: str) -> list[Event]:
    """Return the last event of an attachment, if there is one.

    :raises NotFoundException: there never was such an attachment
    """
    try:
        return storage.timeline(attachment_id)[-1:]
    except exceptions.NotFoundException:
        storage.show(attachment_id)  # It may be older than what is known of it.
        return []


def _is_awaited(event: Event, parsed: argparse.Namespace) -> bool:
    return event["type"] in parsed.until or _is_last(event, parsed)


def _is_last(event: Event, parsed: argparse.Namespace) -> bool:
    return parsed.attachment_id is not None and event["type"] == DELETED


def line(event: Event) -> str:
    """Format an event: time, revision, type, and names with values."""
    known = {name: event.get(key) for name, key in _LINE.items()}
    named = [f"{name}={_word(value)}" for name, value in known.items() if value is not None]
    head = (event["occurred_at"], event["revision"], event["type"])
    return " ".join([*("-" if item is None else f"{item}" for item in head), *named])


def _word(value: Any) -> str:
    """Return a value as one word; special characters are quoted, to protect the terminal."""
    text = f"{value}"
    return text if _PLAIN.fullmatch(text) else json.dumps(text)

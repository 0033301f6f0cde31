# SPDX-License-Identifier: Apache-2.0
"""Query parameters of a watch on events."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Final

from attachd import exception
from attachd.api import paging, policy_rules
from attachd.api.events import policy, view
from attachd.api.validation import canonical
from attachd.context import RequestContext
from attachd.db.attachments import events
from attachd.db.row_types import NumberedEventRow

MAX_WAIT = 60
MAX_EVENTS = 1000
_LARGEST = 2**63 - 1
_LONGEST_NUMBER = len(str(_LARGEST))

QUERY_PARAMETERS: Final[Mapping[str, Any]] = {
    "since": {
        "type": "integer",
        "minimum": 0,
        "maximum": _LARGEST,
        "description": "The revision that was seen last. Without it, no past events are listed.",
    },
    "wait": {
        "type": "integer",
        "minimum": 0,
        "maximum": MAX_WAIT,
        "description": "The maximum number of seconds to wait for an event.",
    },
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_EVENTS,
        "description": "The maximum number of events.",
    },
    "volume_id": {"type": "string", "description": "Only of this volume."},
    "attachment_id": {"type": "string", "description": "Only of this attachment."},
    paging.ALL_PROJECTS: paging.ALL_PROJECTS_PARAMETER[paging.ALL_PROJECTS],
}


@dataclasses.dataclass(frozen=True)
class EventQuery:
    """The parsed parameters of one watch.

    :ivar since: the revision that was seen last; None: none was
    :ivar wait: seconds
    """

    since: int | None
    wait: int
    limit: int
    project_id: str | None
    volume_id: str | None
    attachment_id: str | None
    internals: bool

    def matches(self, row: NumberedEventRow) -> bool:
        """Return whether an event matches."""
        return (
            self.project_id in {None, row["project_id"]}
            and self.volume_id in {None, row["volume_id"]}
            and self.attachment_id in {None, row["attachment_id"]}
        )

    def shown(self, row: NumberedEventRow) -> dict[str, Any] | None:
        """Return an event in the caller's view; None if it does not match."""
        return view.event(row, internals=self.internals) if self.matches(row) else None


def read(
    ctx: RequestContext, query: Mapping[str, str], last_seen: str | None = None
) -> EventQuery:
    """Parse the parameters.

    :param last_seen: the header Last-Event-ID, which a client sends when it reconnects a stream
    :raises InvalidInput: a parameter is unknown, or not a number in its range
    """
    if unknown := sorted(set(query) - set(QUERY_PARAMETERS)):
        raise exception.InvalidInput(
            field=unknown[0],
            value=query[unknown[0]],
            reason=f"Events can be filtered by {', '.join(QUERY_PARAMETERS)}.",
        )
    since = _number({"since": last_seen} if last_seen is not None else query, "since", None)
    project_id = paging.project(ctx, query)
    return EventQuery(
        since,
        _number(query, "wait", 0) or 0,
        _number(query, "limit", MAX_EVENTS) or MAX_EVENTS,
        project_id,
        _id(query, "volume_id"),
        _id(query, "attachment_id"),
        may_see_internals(ctx, project_id),
    )


def may_see_internals(ctx: RequestContext, project_id: str | None) -> bool:
    """Return whether the caller may see the fields for administrators."""
    return policy_rules.allows(ctx, policy.INTERNALS, {"project_id": project_id, "user_id": None})


def _id(query: Mapping[str, str], name: str) -> str | None:
    return canonical(query[name]) if name in query else None


def _number(query: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    bounds = QUERY_PARAMETERS[name]
    short = len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdigit()
    if short and bounds["minimum"] <= int(text) <= bounds["maximum"]:
        return int(text)
    raise exception.InvalidInput(
        field=name,
        value=text[:100],
        reason=f"A number from {bounds['minimum']} to {bounds['maximum']} is required.",
    )


def check(since: int, sequence: events.Sequence) -> None:
    """Check that all events after a revision are still stored.

    :raises EventsExpired: some were purged, or the revision does not exist
    """
    if not sequence.purged <= since <= sequence.assigned:
        raise exception.EventsExpired(since=since, given=sequence.assigned)

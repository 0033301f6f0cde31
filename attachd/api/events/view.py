# SPDX-License-Identifier: Apache-2.0
"""Representation of events on the wire."""

import datetime
from types import MappingProxyType
from typing import Any, Final, NotRequired, TypedDict

from attachd.closed_hosts.fences import Proof
from attachd.db.attachments import events
from attachd.db.attachments.attachment_conditions import Condition
from attachd.db.row_types import NumberedEventRow
from attachd.states import AttachmentState

_DETAILS: Final = ("host", "instance_uuid", "user_id", "request_id", "global_request_id")
_INTERNALS: Final = ("agent", "process", "error")
_OF_TYPES: Final = ("proof", "condition", "move_from")
"""Fields of some events only."""
_STATES: Final = MappingProxyType(
    {
        events.DETACH_REFUSED: AttachmentState.ATTACHED,
        events.FENCED: AttachmentState.DISCONNECTING,
        events.CONDITION_CHANGED: AttachmentState.ATTACHED,
        events.MOVE_FINISHED: AttachmentState.ATTACHED,
    }
)
"""The states of an attachment after events that are not named after one, unless they have it."""


class Step(TypedDict):
    """A step of the work.

    :ivar name: "wait" for the volume lock, "grant" or "revoke" at the backend
    :ivar failed: whether it ended with an error
    """

    name: str
    seconds: float
    failed: bool


class EventCondition(Condition):
    """How well a host reaches its volume after a change of that.

    :ivar former_state: the state before; null: it was not observed
    """

    former_state: str | None


class Event(TypedDict):
    """A change of an attachment.

    :ivar revision: its number among all events, which it keeps
    :ivar type: the new state: "reserved", "connecting", "connected", "attached", "withdrawing",
        "detach_refused", "disconnecting", "deleted", "fenced", "connect_failed",
        "connect_unknown" or "disconnect_failed"; or "condition_changed" or "move_finished"
    :ivar status: the attachment's status after the change
    :ivar occurred_at: time of the change
    :ivar began_at: time when the work began that led to it; null: it took no time
    :ivar seconds: duration of the work
    :ivar steps: its steps, in order
    :ivar user_id: the user who requested it; null: attachd itself did it
    :ivar agent: the host whose agent does the work; for administrators only, as the next two
    :ivar process: that did the work: host and process id
    :ivar error: of the backend or the agent
    :ivar proof: of type "fenced": what the backend has shown of the host's access
    :ivar condition: of type "condition_changed": how well the host reaches the volume
    :ivar move_from: the attachment that this one takes over from, while a move is open
    """

    revision: int
    type: str
    status: str
    attachment_id: str
    volume_id: str
    project_id: str
    occurred_at: datetime.datetime
    began_at: str | None
    seconds: float | None
    steps: list[Step]
    host: str | None
    instance_uuid: str | None
    user_id: str | None
    request_id: str | None
    global_request_id: str | None
    agent: NotRequired[str | None]
    process: NotRequired[str | None]
    error: NotRequired[str | None]
    proof: NotRequired[Proof]
    condition: NotRequired[EventCondition]
    move_from: NotRequired[str]


def event(row: NumberedEventRow, *, internals: bool) -> dict[str, Any]:
    """Return the representation of an event.

    :param internals: whether to include the fields for administrators
    """
    details = row["details"]
    shown = (*_DETAILS, *_INTERNALS) if internals else _DETAILS
    return {
        **{name: row[name] for name in ("revision", "type", "attachment_id", "volume_id")},
        "project_id": row["project_id"],
        "status": status(row["type"], details.get("state")),
        "occurred_at": row["created_at"],
        "began_at": details.get("began_at"),
        "seconds": details.get("seconds"),
        "steps": details.get("steps", []),
        **{name: details.get(name) for name in shown},
        **{name: details[name] for name in _OF_TYPES if name in details},
    }


def status(type_: str, state: str | None = None) -> str:
    """Return the status of an attachment after an event.

    :param state: that the event has, for one that may happen in several
    """
    if type_ == events.DELETED:
        return events.DELETED
    known = AttachmentState(state) if state else _STATES.get(type_)
    return (known or AttachmentState(type_)).wire

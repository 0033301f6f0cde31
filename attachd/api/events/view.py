# SPDX-License-Identifier: Apache-2.0
"""Representation of events on the wire."""

from collections.abc import Mapping
import datetime
from typing import Any, Final, NotRequired, TypedDict

from attachd.db.attachments import events
from attachd.states import AttachmentState

Row = Mapping[str, Any]

_DETAILS: Final = ("host", "instance_uuid", "user_id", "request_id", "global_request_id")
_INTERNALS: Final = ("agent", "process", "error")


class Step(TypedDict):
    """A step of the work.

    :ivar name: "wait" for the volume lock, "grant" or "revoke" at the backend
    :ivar failed: whether it ended with an error
    """

    name: str
    seconds: float
    failed: bool


class Event(TypedDict):
    """A change of an attachment.

    :ivar revision: its number among all events; null: not assigned yet
    :ivar type: the new state: "reserved", "connecting", "connected", "attached", "withdrawing",
        "detach_refused", "disconnecting", "deleted", "connect_failed", "connect_unknown" or
        "disconnect_failed"
    :ivar status: the attachment's status after the change
    :ivar occurred_at: time of the change
    :ivar began_at: time when the work began that led to it; null: it took no time
    :ivar seconds: duration of the work
    :ivar steps: its steps, in order
    :ivar user_id: the user who requested it; null: attachd itself did it
    :ivar agent: the host whose agent does the work; for administrators only, as the next two
    :ivar process: that did the work: host and process id
    :ivar error: of the backend or the agent
    """

    revision: int | None
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


def event(row: Row, *, internals: bool) -> dict[str, Any]:
    """Return the representation of an event.

    :param row: as of db.events.after()
    :param internals: whether to include the fields for administrators
    """
    details = row["details"]
    shown = (*_DETAILS, *_INTERNALS) if internals else _DETAILS
    return {
        **{name: row[name] for name in ("revision", "type", "attachment_id", "volume_id")},
        "project_id": row["project_id"],
        "status": status(row["type"]),
        "occurred_at": row["created_at"],
        "began_at": details.get("began_at"),
        "seconds": details.get("seconds"),
        "steps": details.get("steps", []),
        **{name: details.get(name) for name in shown},
    }


def status(type_: str) -> str:
    """Return the status of an attachment after an event."""
    if type_ == events.DELETED:
        return events.DELETED
    return (
        AttachmentState.ATTACHED.wire
        if type_ == events.DETACH_REFUSED
        else AttachmentState(type_).wire
    )

# SPDX-License-Identifier: Apache-2.0
"""How events look on the wire; used by the handlers of events."""

from collections.abc import Mapping
import datetime
from typing import Any, Final, NotRequired, TypedDict

from attachd.db.attachments import events
from attachd.states import AttachmentState

Row = Mapping[str, Any]

_DETAILS: Final = ("host", "instance_uuid", "user_id", "request_id", "global_request_id")
_INTERNALS: Final = ("agent", "process", "error")


class Step(TypedDict):
    """A part of the work.

    :ivar name: "wait" for the volume's turn, "grant" or "revoke" at the backend
    :ivar failed: whether it ended with an error
    """

    name: str
    seconds: float
    failed: bool


class Event(TypedDict):
    """Something that has become of an attachment.

    :ivar revision: its place among all events; null: it has none yet
    :ivar type: what it has become: "reserved", "connecting", "connected", "attached",
        "withdrawing", "kept", "disconnecting", "deleted", "connect_failed", "connect_unknown" or
        "disconnect_failed"
    :ivar status: the attachment's status by then
    :ivar occurred_at: when
    :ivar began_at: when the work began that ended with it; null: it took no time
    :ivar seconds: how long that took
    :ivar steps: and its parts, in order
    :ivar user_id: who asked for it; null: nobody, attachd itself did it
    :ivar agent: the host whose agent sees to it; administrators only, as what follows
    :ivar process: which has done it, host and process id
    :ivar error: what the backend or the agent said
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
    """Show an event.

    :param row: as of db.events.after()
    :param internals: whether what is for administrators is shown
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
    """Return the status of an attachment of which something has been told."""
    if type_ == events.DELETED:
        return events.DELETED
    return AttachmentState.ATTACHED.wire if type_ == events.KEPT else AttachmentState(type_).wire

# SPDX-License-Identifier: Apache-2.0
"""Recognises a request for an attachment that is there already; asked by attachments.reserve().

keystoneauth, which all stock clients send their requests with, repeats a request when the
connection breaks before the answer: a POST too, if its user has connect_retries, as Compute has.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attachd.states import AttachmentKind, AttachmentState

Row = dict[str, Any]

_UNFINISHED: Final = frozenset(
    {AttachmentState.RESERVED, AttachmentState.CONNECTING, AttachmentState.CONNECTED}
)
"""States in which an attachment is before it is completed: whoever does that knows its id."""

_COMPARED: Final = ("project_id", "user_id", "instance_uuid", "asked_mode", "connector")

_UNFINISHED_AT_AGENT: Final = _UNFINISHED | {AttachmentState.ATTACHED}
"""... where an agent completes it, before whoever asked for it has heard of it."""

_COMPARED_AT_AGENT: Final = ("project_id", "user_id", "instance_uuid", "asked_mode", "agent")
"""What a host says of itself may change while it starts anew; its name does not."""


def find_duplicate(new: Mapping[str, Any], rows: Sequence[Row]) -> Row | None:
    """Return the attachment that a request has made before, if it surely is that.

    It is where the same user asks for the same server and, to the letter, the same connector,
    while that attachment is not completed.  Without a server or a connector two requests may be
    meant: a server that moves, or gets another size, has a second attachment reserved.  An agent
    completes by itself, and needs no second attachment at the same host.

    :param new: the row that would be stored
    :param rows: of the volume, under its lock
    """
    if not new.get("connector") or not new.get("instance_uuid"):
        return None
    return next((row for row in rows if _is_duplicate(new, row)), None)


def _is_duplicate(new: Mapping[str, Any], row: Row) -> bool:
    agent = new.get("agent")
    states, same = (
        (_UNFINISHED, _COMPARED) if agent is None else (_UNFINISHED_AT_AGENT, _COMPARED_AT_AGENT)
    )
    return (
        row["kind"] == AttachmentKind.ATTACHMENT
        and row["agent"] == agent
        and row["state"] in states
        and all(row[name] == new.get(name) for name in same)
    )

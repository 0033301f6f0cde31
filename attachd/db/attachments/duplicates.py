# SPDX-License-Identifier: Apache-2.0
"""Recognition of a request for an attachment that exists already; used by store.reserve().

keystoneauth, which all stock clients use, repeats a request when the connection breaks before the
answer: also a POST, if its user sets connect_retries, as Compute does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attachd.states import AttachmentKind, AttachmentState

Row = dict[str, Any]

_UNFINISHED: Final = frozenset(
    {AttachmentState.RESERVED, AttachmentState.CONNECTING, AttachmentState.CONNECTED}
)
"""States of an attachment before it is completed: the caller that completes it knows its id."""

_COMPARED: Final = ("project_id", "user_id", "instance_uuid", "asked_mode", "connector")

_UNFINISHED_AT_AGENT: Final = _UNFINISHED | {AttachmentState.ATTACHED}
"""The same with an agent, which completes the attachment before the caller knows its id."""

_COMPARED_AT_AGENT: Final = ("project_id", "user_id", "instance_uuid", "asked_mode", "agent")
"""What a host reports of itself may change while it restarts; its name does not."""


def find_duplicate(new: Mapping[str, Any], rows: Sequence[Row]) -> Row | None:
    """Return the attachment that an earlier run of a request created, if that is certain.

    It is certain where the same user asks for the same server and exactly the same connector,
    while that attachment is not completed. Without a server or a connector two requests may be
    intended: a server that moves, or is resized, has a second attachment reserved. An agent
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

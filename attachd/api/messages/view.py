# SPDX-License-Identifier: Apache-2.0
"""How messages to users look on the wire; used by handlers.py."""

from collections.abc import Mapping
import datetime
from typing import Any, TypedDict

from attachd.api.links import Link, Links
from attachd.db import messages

Row = Mapping[str, Any]


class Message(TypedDict):
    """A message to the users of a project.

    :ivar guaranteed_until: when it is removed
    :ivar request_id: of the request that had the work done
    """

    id: str
    event_id: str
    user_message: str
    message_level: str
    created_at: datetime.datetime
    guaranteed_until: datetime.datetime | None
    request_id: str | None
    links: list[Link]
    resource_type: str | None
    resource_uuid: str | None


def shown(row: Row, links: Links) -> dict[str, Any]:
    """Show a message: its numbers become words here."""
    action = messages.ACTIONS.get(row["action_id"], "unknown action")
    words = messages.DETAILS.get(row["detail_id"], messages.DETAILS[messages.UNKNOWN])
    detail = words if row["facts"] is None else words % row["facts"]
    return {
        "id": row["id"],
        "event_id": row["event_id"],
        "user_message": f"{action}:{detail}",
        "message_level": row["message_level"],
        "created_at": row["created_at"],
        "guaranteed_until": row["expires_at"],
        "request_id": row["request_id"],
        "links": links.of("messages", row["id"]),
        "resource_type": row["resource_type"],
        "resource_uuid": row["resource_uuid"],
    }

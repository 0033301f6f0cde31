# SPDX-License-Identifier: Apache-2.0
"""Tells users what went wrong after requests had been accepted; called by the verbs.

What a message says is for users: which action, and what kind of failure.  The reason, in the
words of the backend, is in the row and in the log.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from oslo_context import context as oslo_context
from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import messages as db
from attachd.states import Event

LOG = log.getLogger(__name__)

_WORDS: Final[Mapping[Event, tuple[str, str]]] = MappingProxyType(
    {
        Event.CREATE_FAILED: (db.CREATE, db.NOT_CREATED),
        Event.DELETE_FAILED: (db.DELETE, db.NOT_DELETED),
        Event.EXTEND_FAILED: (db.EXTEND, db.NOT_EXTENDED),
        Event.CONNECT_FAILED: (db.CONNECT, db.NOT_ATTACHED),
        Event.CONNECT_LOST: (db.CONNECT, db.NOT_ATTACHED),
        Event.DISCONNECT_FAILED: (db.DISCONNECT, db.NOT_DETACHED),
    }
)


def of_volume(row: Mapping[str, Any], event: Event, cause: Exception) -> None:
    """Tell whom a volume belongs to that something was not done with it."""
    _tell(row["id"], row["project_id"], event, cause)


def of_force(row: Mapping[str, Any], user_id: str | None) -> None:
    """Tell whom an attachment belongs to who has it deleted by force."""
    facts = {"user_id": user_id, "attachment_id": row["id"]}
    _store(row["volume_id"], row["project_id"], db.DISCONNECT, db.FORCED, facts)


def of_expiry(row: Mapping[str, Any]) -> None:
    """Tell whom a reservation belonged to that it was removed."""
    facts = {"attachment_id": row["id"]}
    _store(row["volume_id"], row["project_id"], db.RESERVE, db.EXPIRED, facts)


def of_attachment(row: Mapping[str, Any], event: Event, cause: Exception) -> None:
    """Tell whom an attachment belongs to that something was not done with it."""
    _tell(row["volume_id"], row["project_id"], event, cause)


def _tell(volume_id: str, project_id: str, event: Event, cause: Exception) -> None:
    action, detail = _WORDS[event]
    if isinstance(cause, exception.Unavailable):
        detail = db.BACKEND_DOWN
    _store(volume_id, project_id, action, detail)


def _store(
    volume_id: str,
    project_id: str,
    action: str,
    detail: str,
    facts: Mapping[str, str | None] | None = None,
) -> None:
    asked = oslo_context.get_current()
    request_id = asked.request_id if asked else None
    news = db.News(volume_id, project_id, action, detail, request_id, facts)
    try:
        db.create(news, CONF.manager.message_ttl)
    except Exception:
        # How the work ended matters more, and is in the row.
        LOG.exception("The user of volume %s could not be told what happened to it", volume_id)

# SPDX-License-Identifier: Apache-2.0
"""The messages table: failures of background work, and actions of other users.

Managers write it, the API too where it works alone, and the API reads it. A message has numbers
for the action and for the outcome. They are those of the Block Storage API, whose table of actions
has no deletion and no detach; attachd's own begin with 101.
"""

from collections.abc import Mapping
import datetime
from types import MappingProxyType
from typing import Final, NamedTuple, TypedDict

from oslo_log import log
import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import MessageRow

LOG = log.getLogger(__name__)

_MESSAGES = models.messages

VOLUME: Final = "VOLUME"
VOLUME_SNAPSHOT: Final = "VOLUME_SNAPSHOT"
"""The resource types of messages."""
ERROR: Final = "ERROR"

SCHEDULE: Final = "001"
UPLOAD: Final = "003"
CONNECT: Final = "004"
UNMANAGE: Final = "006"
EXTEND: Final = "007"
CREATE: Final = "008"
SNAPSHOT: Final = "009"
DELETE_SNAPSHOT: Final = "010"
REIMAGE: Final = "016"
DELETE: Final = "101"
DISCONNECT: Final = "102"
RESERVE: Final = "103"
MANAGE: Final = "104"
REVERT: Final = "105"

ACTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        SCHEDULE: "schedule allocate volume",
        UPLOAD: "copy volume to image",
        REIMAGE: "reimage volume",
        CONNECT: "update attachment",
        EXTEND: "extend volume",
        CREATE: "create volume at its backend",
        DELETE: "delete volume",
        DISCONNECT: "delete attachment",
        RESERVE: "reserve volume",
        UNMANAGE: "unmanage volume",
        MANAGE: "manage existing storage",
        SNAPSHOT: "create snapshot",
        DELETE_SNAPSHOT: "delete snapshot",
        REVERT: "revert volume to snapshot",
    }
)
"""Descriptions of the actions, by number."""

UNKNOWN: Final = "001"
BACKEND_DOWN: Final = "002"
NO_BACKEND: Final = "003"
NOT_UPLOADED: Final = "004"
NOT_EXTENDED: Final = "010"
NOT_NOTIFIED: Final = "011"
NOT_CREATED: Final = "012"
NOT_TAKEN: Final = "013"
SNAPSHOT_NOT_DELETED: Final = "016"
NOT_ATTACHED: Final = "021"
NOT_DETACHED: Final = "022"
NOT_REIMAGED: Final = "028"
UNFIT_IMAGE: Final = "029"
NOT_DELETED: Final = "101"
FORCED: Final = "102"
EXPIRED: Final = "103"
NOT_MANAGED: Final = "104"
NOT_UNMANAGED: Final = "105"
NOT_REVERTED: Final = "106"
IMAGE_SERVICE_DOWN: Final = "107"

DETAILS: Final[Mapping[str, str]] = MappingProxyType(
    {
        UNKNOWN: "An unknown error occurred.",
        IMAGE_SERVICE_DOWN: "The Image service does not answer. Try again later.",
        BACKEND_DOWN: "The backend of the volume is down. Try again later.",
        NO_BACKEND: (
            "No backend that is up has the capabilities that the type of the volume asks for. "
            "Delete it, and choose another type."
        ),
        NOT_UPLOADED: "The volume could not be uploaded. Try again: no image is left.",
        NOT_REIMAGED: (
            "The image could not be written to the volume, which may have lost its former data. "
            "Try again, or delete the volume."
        ),
        UNFIT_IMAGE: (
            "The image was not accepted: its format, its content or its checksum is not as it "
            "should be. Try another image."
        ),
        NOT_EXTENDED: (
            "The backend could not extend the volume. Have an administrator reset its status, "
            "then extend it again."
        ),
        NOT_NOTIFIED: (
            "The volume has grown, but Compute could not be asked to show that to server "
            "%(server_id)s: %(reason)s. Have the server stopped and started where it has the "
            "former size, or detach the volume and attach it again."
        ),
        NOT_CREATED: "The backend could not create the volume. Delete it.",
        NOT_ATTACHED: (
            "The backend could not connect the host. Update the attachment to try again, or "
            "delete it."
        ),
        NOT_DETACHED: (
            "The backend could not revoke the host's access. Delete the attachment again."
        ),
        NOT_DELETED: "The backend could not delete the volume. Delete it again.",
        NOT_MANAGED: "The backend could not manage the object, and keeps it. Delete the volume.",
        NOT_UNMANAGED: "The backend could not unmanage the volume or snapshot. Unmanage it again.",
        NOT_TAKEN: (
            "The backend could not take the snapshot. Delete it. If the volume is attached, "
            "detach it before the next attempt."
        ),
        SNAPSHOT_NOT_DELETED: "The backend could not delete the snapshot. Delete it again.",
        NOT_REVERTED: (
            "The backend could not revert the volume, and its data may be that of neither time. "
            "Have an administrator reset its status, and revert it again."
        ),
        FORCED: "User %(user_id)s had attachment %(attachment_id)s deleted by force.",
        EXPIRED: (
            "Reservation %(attachment_id)s has expired: it was not connected in time. Create "
            "another attachment."
        ),
    }
)
"""Descriptions of the outcomes, by number."""


class ForcedAttachment(TypedDict):
    """What :func:`forced` needs of an attachment."""

    id: str
    volume_id: str
    project_id: str


class NewMessage(NamedTuple):
    """A message to be stored.

    :ivar volume_id: the volume, or the snapshot, that it is about
    :ivar project_id: the project that may read it
    :ivar action: of ACTIONS
    :ivar detail: of DETAILS
    :ivar request_id: of the request that caused it; None: none did
    :ivar details: values for the placeholders of the description, by name; None: none
    :ivar resource_type: VOLUME or VOLUME_SNAPSHOT
    """

    volume_id: str
    project_id: str
    action: str
    detail: str
    request_id: str | None
    details: Mapping[str, str | None] | None = None
    resource_type: str = VOLUME


def forced(
    attachment: ForcedAttachment, user_id: str | None, request_id: str | None
) -> NewMessage:
    """Return the message to the user of an attachment that another user ends it by force."""
    details = {"user_id": user_id, "attachment_id": attachment["id"]}
    place = (attachment["volume_id"], attachment["project_id"])
    return NewMessage(*place, DISCONNECT, FORCED, request_id, details)


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing."""

    project_id: str
    resource_uuid: str
    resource_type: str
    event_id: str
    request_id: str
    message_level: str


SORTABLE = frozenset(
    {
        *("id", "created_at", "event_id", "message_level", "request_id", "resource_type"),
        *("resource_uuid",),
    }
)
_EQUAL = tuple(Filters.__annotations__.keys())


@retried
def create(news: NewMessage, kept_for: float) -> None:
    """Store a message that is kept for so many seconds."""
    moment = models.now()
    row = {
        "project_id": news.project_id,
        "request_id": news.request_id,
        "resource_type": news.resource_type,
        "resource_uuid": news.volume_id,
        "action_id": news.action,
        "detail_id": news.detail,
        "details": None if news.details is None else dict(news.details),
        "event_id": f"VOLUME_{news.resource_type}_{news.action}_{news.detail}",
        "message_level": ERROR,
        "created_at": moment,
        "expires_at": moment + datetime.timedelta(seconds=kept_for),
    }
    session.write(sa.insert(_MESSAGES).values(row))


def try_create(news: NewMessage, kept_for: float) -> None:
    """Do as :func:`create`; log what fails: the operation that it is about matters more."""
    try:
        create(news, kept_for)
    except Exception:
        what = (news.resource_type, news.volume_id)
        LOG.exception("%s %s: storing a message to its user failed", *what)


@retried
def get(message_id: str, project_id: str | None) -> MessageRow:
    """Return one message.

    :param project_id: only if it belongs to this project; None: of any project
    :raises MessageNotFound: there is none
    """
    statement = sa.select(_MESSAGES).where(_MESSAGES.c.id == message_id)
    if project_id is not None:
        statement = statement.where(_MESSAGES.c.project_id == project_id)
    row = session.fetch_one(statement, MessageRow)
    if row is None:
        raise exception.MessageNotFound(message_id=message_id)
    return row


@retried
def page(filters: Filters, page: paging.Page) -> list[MessageRow]:
    """Return one page of messages, in one statement.

    :raises MarkerNotFound: there is no such marker
    """
    statement = sa.select(_MESSAGES).where(*paging.equal(_MESSAGES, filters, _EQUAL))
    visible = paging.equal(_MESSAGES, filters, ("project_id",))
    with session.reader() as connection:
        return paging.fetch_page(connection, statement, _MESSAGES, visible, page, MessageRow)


@retried
def delete(message_id: str) -> None:
    """Remove a message.

    :raises MessageNotFound: there is none
    """
    if session.write(sa.delete(_MESSAGES).where(_MESSAGES.c.id == message_id)) != 1:
        raise exception.MessageNotFound(message_id=message_id)


@retried
def purge(limit: int) -> int:
    """Remove expired messages, at most so many; return how many."""
    return session.delete_some(_MESSAGES.c.id, _MESSAGES.c.expires_at < models.now(), limit)

# SPDX-License-Identifier: Apache-2.0
"""Attachments that were deleted, as long as their events are kept.

The event of a deletion has what the row had.  An id that is used again, as a retried request may
do, has several such events: the last one counts, and none while the attachment exists.
"""

from collections.abc import Collection
import dataclasses
import datetime
from typing import Final, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.attachments import events
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import EventRow
from attachd.states import AttachmentState

_EVENTS = models.events
_LATER = _EVENTS.alias()
_IS_LAST = ~sa.exists().where(
    _LATER.c.attachment_id == _EVENTS.c.attachment_id,
    _LATER.c.id > _EVENTS.c.id,
    _LATER.c.type.in_((events.DELETED, AttachmentState.RESERVED.value)),
)
_DELETED = sa.select(_EVENTS).where(_EVENTS.c.type == events.DELETED)
_COLUMNS: Final = ("project_id", "volume_id")


class DeletedAttachment(NamedTuple):
    """An attachment that was deleted, as it was then.

    :ivar user_id: who had created it
    :ivar instance_uuid: of its server; None: it had none
    :ivar host: of its connector; None: no host was ever connected
    :ivar agent: the host whose agent made the device; None: none did
    :ivar device: that it made there, if any
    :ivar mode: rw or ro; None: not known until it was deleted
    :ivar attached_at: None: it was never attached
    :ivar created_at: when it was reserved
    """

    id: str
    project_id: str
    volume_id: str
    detached_at: datetime.datetime
    user_id: str | None = None
    instance_uuid: str | None = None
    host: str | None = None
    agent: str | None = None
    device: str | None = None
    mountpoint: str | None = None
    mode: str | None = None
    attached_at: datetime.datetime | None = None
    created_at: datetime.datetime | None = None


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing.

    :ivar times: comparisons of ``created_at``, the time of the deletion
    """

    project_id: str
    volume_id: str
    times: Collection[paging.Comparison]


@retried
def find(attachment_id: str) -> DeletedAttachment | None:
    """Return an attachment that was deleted; None: no event says so."""
    statement = (
        _DELETED.where(_EVENTS.c.attachment_id == attachment_id)
        .order_by(_EVENTS.c.id.desc())
        .limit(1)
    )
    found = _read(session.fetch_all(statement, EventRow))
    return found[0] if found else None


@retried
def list_attached(attachment_ids: Collection[str]) -> frozenset[str]:
    """Return which of some attachments, that may have been deleted, were attached at any time."""
    statement = sa.select(_EVENTS.c.attachment_id).where(
        _EVENTS.c.attachment_id.in_(attachment_ids),
        _EVENTS.c.type == AttachmentState.ATTACHED.value,
    )
    with session.reader() as connection:
        return frozenset(connection.execute(statement).scalars())


@retried
def page(filters: Filters, page: paging.Page) -> list[DeletedAttachment]:
    """Return one page of deleted attachments, without those that exist again.

    :param page: sorted by ``created_at``, the time of the deletion
    :raises MarkerNotFound: there is no such item
    """
    visible = paging.equal(_EVENTS, filters, ("project_id",))
    with session.reader() as connection:
        paging.check_examined(connection, _EVENTS, [], page)
        if page.marker is not None:
            page = dataclasses.replace(page, marker=_event_id(connection, page.marker, visible))
        statement = _DELETED.where(*_conditions(filters))
        rows = paging.fetch_page(
            connection, statement, _EVENTS, visible, page, EventRow, _order_index(filters)
        )
    return _read(rows)


@retried
def count(filters: Filters) -> int:
    """Return the number of deleted attachments on all pages; raises BadRequest if too many."""
    statement = sa.select(sa.func.count()).select_from(_EVENTS)
    statement = statement.where(_EVENTS.c.type == events.DELETED, *_conditions(filters))
    bounding = [_EVENTS.c.type == events.DELETED, *paging.equal(_EVENTS, filters, _COLUMNS)]
    with session.reader() as connection:
        paging.check_examined(connection, _EVENTS, bounding)
        return int(connection.execute(statement).scalar_one())


def _conditions(filters: Filters) -> list[paging.Condition]:
    return [
        _IS_LAST,
        *paging.equal(_EVENTS, filters, _COLUMNS),
        *paging.compare(_EVENTS, filters.get("times", ())),
    ]


def _order_index(filters: Filters) -> str | None:
    """Return the index to use after a marker, as paging.order_index() does for rows."""
    if "volume_id" in filters:
        return None
    return f"ix_events_{'project_id_' if 'project_id' in filters else ''}type_created_at_id"


def _event_id(
    connection: sa.Connection, attachment_id: str, visible: Collection[paging.Condition]
) -> str:
    """Return the id of the event after which a page begins, as a marker."""
    deleted = sa.select(sa.func.max(_EVENTS.c.id)).where(
        _EVENTS.c.attachment_id == attachment_id, _EVENTS.c.type == events.DELETED, *visible
    )
    event_id: int | None = connection.execute(deleted).scalar_one()
    if event_id is None:
        raise exception.MarkerNotFound(marker=attachment_id)
    return str(event_id)


def _read(rows: Collection[EventRow]) -> list[DeletedAttachment]:
    """Return the attachments of events, with the devices that agents had removed before."""
    removed = [row["attachment_id"] for row in rows if "agent" in row["details"]]
    devices: dict[str, str | None] = {}
    if removed:
        attached = sa.select(_EVENTS).where(
            _EVENTS.c.attachment_id.in_(removed), _EVENTS.c.type == AttachmentState.ATTACHED.value
        )
        for event in session.fetch_all(attached.order_by(_EVENTS.c.id), EventRow):
            devices[event["attachment_id"]] = event["details"].get("device")
    return [_from_event(row, devices.get(row["attachment_id"])) for row in rows]


def _from_event(row: EventRow, device: str | None) -> DeletedAttachment:
    details = row["details"]
    kept = details.get(events.AS_DELETED, {})
    return DeletedAttachment(
        id=row["attachment_id"],
        project_id=row["project_id"],
        volume_id=row["volume_id"],
        detached_at=row["created_at"],
        user_id=kept.get("user_id"),
        instance_uuid=details.get("instance_uuid"),
        host=details.get("host"),
        agent=details.get("agent"),
        device=details.get("device") or device,
        mountpoint=kept.get("mountpoint"),
        mode=kept.get("mode"),
        attached_at=_parse_time(kept.get("attached_at")),
        created_at=_parse_time(kept.get("created_at")),
    )


def _parse_time(text: str | None) -> datetime.datetime | None:
    return None if text is None else datetime.datetime.fromisoformat(text)

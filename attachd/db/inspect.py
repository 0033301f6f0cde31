# SPDX-License-Identifier: Apache-2.0
"""Rows for operators, without the API: inner states, holders, leases; nothing is changed.

Secrets are never read.
"""

from collections.abc import Collection
import datetime
from typing import NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.attachments.attachment_queries import PUBLIC_COLUMNS
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, VolumeRow
from attachd.states import AttachmentState

_ATTACHMENTS = models.attachments
_VOLUMES = models.volumes
_MEMBERS = models.members


class AttachmentFilters(NamedTuple):
    """Filters of a list of attachments; None filters nothing.

    :ivar host: by its connector, or by its agent
    :ivar made_before: in UTC, as the next one
    """

    host: str | None = None
    volume_id: str | None = None
    states: Collection[AttachmentState] | None = None
    made_before: datetime.datetime | None = None
    changed_before: datetime.datetime | None = None
    limit: int | None = None


@retried
def list_attachments(query: AttachmentFilters) -> list[AttachmentRow]:
    """Return attachments of every kind, oldest first, without secrets."""
    statement = (
        sa.select(*PUBLIC_COLUMNS)
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
        .limit(query.limit)
    )
    return session.fetch_all(statement.where(*_conditions(query)), AttachmentRow)


def _conditions(query: AttachmentFilters) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if query.host is not None:
        conditions.append(
            sa.or_(_ATTACHMENTS.c.host == query.host, _ATTACHMENTS.c.agent == query.host)
        )
    if query.volume_id is not None:
        conditions.append(_ATTACHMENTS.c.volume_id == query.volume_id)
    if query.states is not None:
        conditions.append(_ATTACHMENTS.c.state.in_(sorted(query.states)))
    if query.made_before is not None:
        conditions.append(_ATTACHMENTS.c.created_at <= query.made_before)
    if query.changed_before is not None:
        changed = sa.func.coalesce(_ATTACHMENTS.c.updated_at, _ATTACHMENTS.c.created_at)
        conditions.append(changed <= query.changed_before)
    return conditions


@retried
def get_attachment(attachment_id: str) -> AttachmentRow:
    """Return an attachment of any kind, without secrets; raises AttachmentNotFound."""
    statement = sa.select(*PUBLIC_COLUMNS).where(_ATTACHMENTS.c.id == attachment_id)
    row = session.fetch_one(statement, AttachmentRow)
    if row is None:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    return row


class InspectedVolumeRow(VolumeRow):
    """A volume, with the process that works on it.

    :ivar lease_holder_name: None: no process works on it, or that process is dead
    """

    lease_holder_name: str | None


@retried
def get_volume(id_or_name: str) -> InspectedVolumeRow:
    """Return a volume's row.

    :raises VolumeNotFound: there is none
    :raises BadRequest: several have the name; the message has their ids
    """
    statement = sa.select(_VOLUMES, _MEMBERS.c.name.label("lease_holder_name")).outerjoin(
        _MEMBERS, _MEMBERS.c.id == _VOLUMES.c.lease_holder
    )
    for column in (_VOLUMES.c.id, _VOLUMES.c.name):
        matching = statement.where(column == id_or_name).order_by(_VOLUMES.c.id)
        rows = session.fetch_all(matching, InspectedVolumeRow)
        if len(rows) > 1:
            ids = ", ".join(row["id"] for row in rows)
            raise exception.BadRequest(
                reason=f"{len(rows)} volumes have the name {id_or_name}: give the ID of one: {ids}"
            )
        if rows:
            return rows[0]
    raise exception.VolumeNotFound(volume_id=id_or_name)


@retried
def list_leases() -> dict[str, list[str]]:
    """Return the ids of the volumes that processes work on, by process, dead ones included."""
    statement = (
        sa.select(_VOLUMES.c.lease_holder, _VOLUMES.c.id)
        .where(_VOLUMES.c.lease_holder.is_not(None))
        .order_by(_VOLUMES.c.lease_holder, _VOLUMES.c.id)
    )
    volume_leases: dict[str, list[str]] = {}
    with session.reader() as connection:
        for holder, volume_id in connection.execute(statement):
            volume_leases.setdefault(holder, []).append(volume_id)
    return volume_leases

# SPDX-License-Identifier: Apache-2.0
"""What operators see of rows without the API: inner states, holders, leases; nothing is changed.

What is secret is never read.
"""

from collections.abc import Collection
import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models
from attachd.db.attachment_queries import BRIEF
from attachd.states import AttachmentState

Row = dict[str, Any]
_A = models.attachments
_V = models.volumes
_P = models.processes


class Wanted(NamedTuple):
    """Which attachments are wanted; None filters nothing.

    :ivar host: by its connector, or by its agent
    :ivar made_before: in UTC, as the next one
    """

    host: str | None = None
    volume_id: str | None = None
    states: Collection[AttachmentState] | None = None
    made_before: datetime.datetime | None = None
    changed_before: datetime.datetime | None = None
    limit: int | None = None


@api.retried
def attachments(wanted: Wanted) -> list[Row]:
    """Return attachments of every kind, oldest first, without secrets."""
    statement = sa.select(*BRIEF).order_by(_A.c.created_at, _A.c.id).limit(wanted.limit)
    with api.reader() as connection:
        found = connection.execute(statement.where(*_conditions(wanted)))
        return [dict(row._mapping) for row in found]


def _conditions(wanted: Wanted) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if wanted.host is not None:
        found.append(sa.or_(_A.c.host == wanted.host, _A.c.agent == wanted.host))
    if wanted.volume_id is not None:
        found.append(_A.c.volume_id == wanted.volume_id)
    if wanted.states is not None:
        found.append(_A.c.state.in_(sorted(wanted.states)))
    if wanted.made_before is not None:
        found.append(_A.c.created_at <= wanted.made_before)
    if wanted.changed_before is not None:
        changed = sa.func.coalesce(_A.c.updated_at, _A.c.created_at)
        found.append(changed <= wanted.changed_before)
    return found


@api.retried
def attachment(attachment_id: str) -> Row:
    """Return an attachment of any kind, without secrets; raises AttachmentNotFound."""
    with api.reader() as connection:
        statement = sa.select(*BRIEF).where(_A.c.id == attachment_id)
        row = connection.execute(statement).one_or_none()
    if row is None:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    return dict(row._mapping)


@api.retried
def volume(volume_id: str) -> Row:
    """Return a volume's row, with ``lease_holder_name``: None if that process is dead.

    :raises VolumeNotFound: there is none
    """
    statement = (
        sa.select(_V, _P.c.name.label("lease_holder_name"))
        .outerjoin(_P, _P.c.id == _V.c.lease_holder)
        .where(_V.c.id == volume_id)
    )
    with api.reader() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    return dict(row._mapping)


@api.retried
def leases() -> dict[str, list[str]]:
    """Return the ids of the volumes that processes work on, by process, dead ones included."""
    statement = (
        sa.select(_V.c.lease_holder, _V.c.id)
        .where(_V.c.lease_holder.is_not(None))
        .order_by(_V.c.lease_holder, _V.c.id)
    )
    found: dict[str, list[str]] = {}
    with api.reader() as connection:
        for holder, volume_id in connection.execute(statement):
            found.setdefault(holder, []).append(volume_id)
    return found

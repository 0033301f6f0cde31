# SPDX-License-Identifier: Apache-2.0
"""The compute_events table: external events that Compute is still to be sent.

A row is stored in the transaction of the change that it reports, so that no kill loses it, and
removed when Compute has accepted or refused the event.  A process claims a row before it sends the
event; the claim ends by itself, so that another process goes on where one was killed.  Compute may
get an event twice.
"""

import datetime
from typing import Final

import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import ComputeEventRow
from attachd.states import ESTABLISHED, AttachmentKind

_EVENTS = models.compute_events
_ATTACHMENTS = models.attachments

VOLUME_EXTENDED: Final = "volume-extended"
"""The event about a volume that has grown; its tag is the id of the volume."""

VOLUME_REIMAGED: Final = "volume-reimaged"
"""The event about a volume that has got another image, for which a rebuild waits; its tag too."""

_OF_SERVER = _ATTACHMENTS.c.instance_uuid.is_not(None)
_ON_SERVER = sa.and_(
    _OF_SERVER,
    _ATTACHMENTS.c.state.in_(sorted(ESTABLISHED)),
    # The agent of a host rescans its devices itself.
    _ATTACHMENTS.c.agent.is_(None),
    # Without a host there is no disk: the server is shelved.  Those of the older calls have the
    # host in the row of their connection.
    sa.or_(_ATTACHMENTS.c.host.is_not(None), _ATTACHMENTS.c.kind == AttachmentKind.LEGACY.value),
)
"""Attachments that a server of Compute has established."""


class DueEvent(ComputeEventRow):
    """An event that may be sent now.

    :ivar project_id: of its volume; None: the volume does not exist any more
    :ivar is_attached: whether the server still has the volume
    """

    project_id: str | None
    is_attached: bool


def record_extended(connection: sa.Connection, volume_id: str) -> None:
    """Store that the servers of a volume are to be notified of its size, within a transaction.

    Former such events of the volume are replaced.  The transaction holds the lock of its row.
    """
    _record(connection, volume_id, VOLUME_EXTENDED, _ON_SERVER)


def record_reimaged(connection: sa.Connection, volume_id: str) -> None:
    """Store that the servers which have reserved a volume are to be notified of its new image.

    As :func:`record_extended`.
    """
    _record(connection, volume_id, VOLUME_REIMAGED, _OF_SERVER)


def _record(
    connection: sa.Connection, volume_id: str, name: str, notified: sa.ColumnElement[bool]
) -> None:
    is_former = sa.and_(_EVENTS.c.volume_id == volume_id, _EVENTS.c.name == name)
    connection.execute(sa.delete(_EVENTS).where(is_former))
    servers = (
        sa.select(_ATTACHMENTS.c.instance_uuid)
        .distinct()
        .where(_ATTACHMENTS.c.volume_id == volume_id, notified)
    )
    present = models.now()
    rows = [
        {
            "id": models.new_id(),
            "volume_id": volume_id,
            "server_id": server_id,
            "name": name,
            "tag": volume_id,
            "attempts": 0,
            "next_attempt_at": present,
            "created_at": present,
        }
        for server_id in sorted(connection.scalars(servers))
    ]
    if rows:
        connection.execute(sa.insert(_EVENTS), rows)


@retried
def list_due(limit: int, volume_id: str | None = None) -> list[DueEvent]:
    """Return the events that no process sends at the moment, the longest due first.

    :param volume_id: only those of this volume
    """
    holds = sa.exists().where(
        _ATTACHMENTS.c.volume_id == _EVENTS.c.volume_id,
        _ATTACHMENTS.c.instance_uuid == _EVENTS.c.server_id,
        sa.or_(_EVENTS.c.name == VOLUME_REIMAGED, _ON_SERVER),
    )
    statement = (
        sa.select(_EVENTS, models.volumes.c.project_id, holds.label("is_attached"))
        .outerjoin(models.volumes, models.volumes.c.id == _EVENTS.c.volume_id)
        .where(_EVENTS.c.next_attempt_at <= models.now())
        .order_by(_EVENTS.c.next_attempt_at, _EVENTS.c.id)
        .limit(limit)
    )
    if volume_id is not None:
        statement = statement.where(_EVENTS.c.volume_id == volume_id)
    return session.fetch_all(statement, DueEvent)


@retried
def claim(event: ComputeEventRow, until: datetime.datetime) -> bool:
    """Claim an event for one attempt, which counts from now on.

    :param event: as it was read
    :param until: when other processes may claim it
    :returns: False: another process has claimed or replaced it
    """
    unchanged = sa.and_(_EVENTS.c.id == event["id"], _EVENTS.c.attempts == event["attempts"])
    values = {"attempts": event["attempts"] + 1, "next_attempt_at": until}
    return session.write(sa.update(_EVENTS).where(unchanged).values(values)) == 1


@retried
def postpone(event: ComputeEventRow, error: str, until: datetime.datetime) -> None:
    """Store why the attempt that :func:`claim` has counted failed, and when the next one is."""
    claimed = sa.and_(_EVENTS.c.id == event["id"], _EVENTS.c.attempts == event["attempts"] + 1)
    values = {"error": models.truncate_error(error), "next_attempt_at": until}
    session.write(sa.update(_EVENTS).where(claimed).values(values))


@retried
def delete(event: ComputeEventRow) -> bool:
    """Remove an event; return False if it was removed or replaced meanwhile."""
    return session.write(sa.delete(_EVENTS).where(_EVENTS.c.id == event["id"])) == 1

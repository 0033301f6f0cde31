# SPDX-License-Identifier: Apache-2.0
"""What becomes of attachments: told in the transaction that does it, kept for some time.

:func:`record` adds an event where an attachment moves; ``events`` is an outbox.  An event has no
place at first: of two transactions, that which drew the lower number may be the last to commit,
and who has read up to the higher one would never see it.  So :func:`assign_sequence` numbers what
is
committed, in the order in which it was for each volume, one process at a time and without gaps.
Whoever has seen all up to one place has seen everything before it.
"""

from collections.abc import Mapping
import datetime
import os
from typing import Any, Final, NamedTuple

from oslo_context import context as oslo_context
import sqlalchemy as sa

from attachd import states
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried
from attachd.states import AttachmentState, Event
from attachd.telemetry import step_timer

Row = dict[str, Any]
_EVENTS = models.events
_EVENT_SEQUENCE = models.event_sequence

KEPT: Final = "kept"
DELETED: Final = "deleted"
TYPES: Final = (*(state.value for state in AttachmentState), KEPT, DELETED)
"""What can have become of an attachment: an inner state, kept by its host, or deleted."""

BATCH = 500
"""How many get their places in one transaction."""

_INSERT = CompiledStatement(sa.insert(_EVENTS))
_UNASSIGNED = (
    sa.select(_EVENTS.c.id).where(_EVENTS.c.revision.is_(None)).order_by(_EVENTS.c.id).limit(BATCH)
)
_SEQUENCE = sa.select(_EVENT_SEQUENCE.c.assigned, _EVENT_SEQUENCE.c.purged).where(
    _EVENT_SEQUENCE.c.id == 1
)
_SEQUENCE_AND_UNASSIGNED = _SEQUENCE.add_columns(sa.exists().where(_EVENTS.c.revision.is_(None)))


class Sequence(NamedTuple):
    """What there is to read.

    :ivar assigned: the place of the last event
    :ivar purged: the place of the last one that is not kept any more; those behind it are
    """

    assigned: int
    purged: int


def record(
    connection: sa.Connection,
    row: Mapping[str, Any],
    type_: str,
    error: str | None = None,
) -> None:
    """Add an event to a transaction, unless clients know nothing of such a row.

    Who asked for it is read from the thread's context, and how long it took from what the thread
    works on.

    :param row: the attachment's, as far as it is known, with ``id``, ``project_id``, ``volume_id``
    :param type_: one of TYPES
    """
    if row.get("kind", "attachment") not in states.VISIBLE_KINDS:
        return
    _INSERT.execute(
        connection,
        {
            "created_at": models.now(),
            "project_id": row["project_id"],
            "volume_id": row["volume_id"],
            "attachment_id": row["id"],
            "type": type_,
            "details": _details(row, error),
        },
    )


def event_type(event: Event, target: AttachmentState | None) -> str:
    """Return what an attachment's move along an arrow is told as."""
    if event is Event.KEEP:
        return KEPT
    return DELETED if target is None else target.value


def _details(row: Mapping[str, Any], error: str | None) -> Row:
    """Return what is known, without what is not: host, instance, who asked, who did it, steps."""
    known = {name: row.get(column) for name, column in _ROW_DETAILS.items()}
    context = oslo_context.get_current()
    if context is not None:
        known |= {name: getattr(context, name, None) for name in _CONTEXT_DETAILS}
    known["process"] = f"{CONF.host}:{os.getpid()}"
    known["error"] = error
    if (at := step_timer.current()) is not None:
        known["began_at"] = at.began_at.isoformat()
        known["seconds"] = round(at.seconds, 6)
        known["steps"] = [
            {"name": item.name, "seconds": round(item.seconds, 6), "failed": item.failed}
            for item in at.steps
        ]
    return {name: value for name, value in known.items() if value is not None}


_ROW_DETAILS: Final = {"host": "host", "instance_uuid": "instance_uuid", "agent": "agent"}
_CONTEXT_DETAILS: Final = ("user_id", "request_id", "global_request_id")


@retried
def sequence() -> Sequence:
    """Return what there is to read by now."""
    with session.reader() as connection:
        return _fetch_sequence(connection, _SEQUENCE)


def assign_sequence() -> Sequence:
    """Give all that was committed until now its place, and return what there is to read."""
    now, more = _read_sequence()
    while more:
        now, more = _assign_batch()
    return now


@retried
def _read_sequence() -> tuple[Sequence, bool]:
    """Return what there is to read, and whether something has no place yet."""
    with session.reader() as connection:
        assigned, purged, more = connection.execute(_SEQUENCE_AND_UNASSIGNED).one()
    return Sequence(assigned, purged), bool(more)


@retried
def _assign_batch() -> tuple[Sequence, bool]:
    """Do as :func:`assign_sequence`, but for no more than BATCH; return whether there may be
    more.
    """
    with session.writer() as connection:
        # Behind this lock, whatever others have numbered is seen to have its number.
        now = _fetch_sequence(connection, _SEQUENCE.with_for_update())
        new = connection.execute(_UNASSIGNED).scalars().all()
        if not new:
            return now, False
        numbers = {number: now.assigned + item for item, number in enumerate(new, 1)}
        connection.execute(
            # By their ids alone: MariaDB might look for those without a place, and wait for
            # transactions that are about to add one.
            sa.update(_EVENTS)
            .where(_EVENTS.c.id.in_(numbers))
            .values(revision=sa.case(numbers, value=_EVENTS.c.id))
        )
        assigned = now.assigned + len(new)
        connection.execute(
            sa.update(_EVENT_SEQUENCE).where(_EVENT_SEQUENCE.c.id == 1).values(assigned=assigned)
        )
        return Sequence(assigned, now.purged), len(new) == BATCH


@retried
def list_after(place: int, limit: int, project_id: str | None = None) -> list[Row]:
    """Return the events behind a place, in order.

    :param limit: how many at most
    :param project_id: only of this project; None: of all
    """
    statement = (
        sa.select(_EVENTS)
        .where(_EVENTS.c.revision > place)
        .order_by(_EVENTS.c.revision)
        .limit(limit)
    )
    if project_id is not None:
        statement = statement.where(_EVENTS.c.project_id == project_id)
    return _list(statement)


@retried
def list_of_attachment(attachment_id: str, project_id: str | None) -> list[Row]:
    """Return what has become of an attachment, in order; it may be gone itself.

    :param project_id: only if it belongs to this project; None: whomever it belongs to
    """
    statement = (
        sa.select(_EVENTS).where(_EVENTS.c.attachment_id == attachment_id).order_by(_EVENTS.c.id)
    )
    if project_id is not None:
        statement = statement.where(_EVENTS.c.project_id == project_id)
    return _list(statement)


def purge(before: datetime.datetime, limit: int) -> int:
    """Remove what is older than this; what nobody has read yet gets its place first.

    :param limit: how many at most, the oldest first
    :returns: how many
    """
    assign_sequence()
    return _purge(before, limit)


@retried
def _purge(before: datetime.datetime, limit: int) -> int:
    old = (
        sa.select(_EVENTS.c.revision)
        .where(_EVENTS.c.revision.is_not(None), _EVENTS.c.created_at < before)
        .order_by(_EVENTS.c.revision)
        .limit(limit)
    )
    with session.writer() as connection:
        now = _fetch_sequence(connection, _SEQUENCE.with_for_update())
        last = max(connection.execute(old).scalars(), default=None)
        if last is None:
            return 0
        # Places end at one point, whatever clocks have said.
        result = connection.execute(sa.delete(_EVENTS).where(_EVENTS.c.revision <= last))
        purged = max(now.purged, last)
        connection.execute(
            sa.update(_EVENT_SEQUENCE).where(_EVENT_SEQUENCE.c.id == 1).values(purged=purged)
        )
    return result.rowcount


def _fetch_sequence(connection: sa.Connection, statement: sa.Select[Any]) -> Sequence:
    return Sequence(*connection.execute(statement).one())


def _list(statement: sa.Select[Any]) -> list[Row]:
    with session.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(statement)]

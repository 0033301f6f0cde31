# SPDX-License-Identifier: Apache-2.0
"""Events of attachments, stored in the transaction that causes them and kept for some time.

:func:`record` adds an event where an attachment moves; ``events`` is an outbox.  An event has no
revision at first: of two transactions, the one that drew the lower number may commit last, and a
reader that is past the higher number would never see it.  So :func:`assign_sequence` numbers
committed events, in the order in which they were committed for each volume, one process at a time
and without gaps.  A manager does so every few seconds, and so do requests that read events.  A
reader that has seen all events up to one revision has seen everything before it.
"""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import datetime
import math
import os
import threading
from typing import Any, Final, NamedTuple, TypedDict

from oslo_context import context as oslo_context
import sqlalchemy as sa

from attachd import exception, host_identity, states
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried
from attachd.db.row_types import EventRow, NumberedEventRow
from attachd.states import AttachmentState, Event
from attachd.telemetry import tracing

_EVENTS = models.events
_EVENT_SEQUENCE = models.event_sequence

DETACH_REFUSED: Final = "detach_refused"
DELETED: Final = "deleted"
FENCED: Final = "fenced"
CONDITION_CHANGED: Final = "condition_changed"
MOVE_FINISHED: Final = "move_finished"
TYPES: Final = (
    *(state.value for state in AttachmentState),
    *(DETACH_REFUSED, DELETED, FENCED, CONDITION_CHANGED, MOVE_FINISHED),
)
"""The types of events: a state of the attachment; detach refused by its host; deleted; fenced: its
host has no access any more, and the event has the proof; another condition; or its move is
finished: the other host's access has ended, and the event has the state of the attachment."""

AS_DELETED: Final = "attachment"
"""The detail of a deletion that has columns of the row, as far as other details do not."""

_CLOCK_MARGIN: Final = datetime.timedelta(seconds=1)
"""By how much the clocks of two processes may differ, see models.follow_clock()."""

BATCH = 500
"""The number of events that get their revisions in one transaction."""

MAX_BATCHES: Final = 4
"""How many batches a request numbers; managers number what is left."""

_INSERT = CompiledStatement(sa.insert(_EVENTS))
_UNASSIGNED = (
    sa.select(_EVENTS.c.id).where(_EVENTS.c.revision.is_(None)).order_by(_EVENTS.c.id).limit(BATCH)
)
_SEQUENCE = sa.select(_EVENT_SEQUENCE.c.assigned, _EVENT_SEQUENCE.c.purged).where(
    _EVENT_SEQUENCE.c.id == 1
)
_SEQUENCE_AND_UNASSIGNED = _SEQUENCE.add_columns(sa.exists().where(_EVENTS.c.revision.is_(None)))


class Sequence(NamedTuple):
    """The range of events that can be read.

    :ivar assigned: the revision of the last event
    :ivar purged: the revision of the last purged event; later ones are kept
    """

    assigned: int
    purged: int


class EventSource(TypedDict):
    """What each event needs of an attachment."""

    id: str
    project_id: str
    volume_id: str


class FencedRow(TypedDict):
    """An attachment that was fenced, and the proof, as of manager.fencing.Proof."""

    attachment_id: str
    volume_id: str
    instance_uuid: str | None
    proof: dict[str, Any]


def record(
    connection: sa.Connection,
    row: EventSource,
    type_: str,
    error: str | None = None,
    **more: Any,
) -> None:
    """Add an event to a transaction, unless clients do not see such a row.

    The caller is read from the thread's context, and the duration from the thread's operation.

    :param row: of the attachment; host, server, agent and move are recorded if it has them
    :param type_: one of TYPES
    :param more: further details
    """
    if row.get("kind", "attachment") not in states.VISIBLE_KINDS:
        return
    if type_ == DELETED:
        more[AS_DELETED] = _last_content(row)
    event = {
        "created_at": models.now(),
        "project_id": row["project_id"],
        "volume_id": row["volume_id"],
        "attachment_id": row["id"],
        "type": type_,
        "details": {**_details(row, error), **more},
    }
    if _thread.collected is None:
        _INSERT.execute(connection, event)
    else:
        _thread.collected.append(event)


@retried
def record_fenced(row: EventSource, proof: Mapping[str, Any]) -> None:
    """Add an event of an attachment that is fenced.

    :param proof: as of manager.fencing.Proof
    """
    with session.writer() as connection:
        record(connection, row, FENCED, proof=dict(proof))


@retried
def list_proofs(
    attachment_ids: Collection[str], volume_id: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the last proof of each of some attachments that were fenced, by their ids.

    :param volume_id: only those of this volume; None: of any
    """
    statement = (
        sa.select(_EVENTS.c.attachment_id, _EVENTS.c.details)
        .where(_EVENTS.c.attachment_id.in_(attachment_ids), _EVENTS.c.type == FENCED)
        .order_by(_EVENTS.c.id)
    )
    if volume_id is not None:
        statement = statement.where(_EVENTS.c.volume_id == volume_id)
    with session.reader() as connection:
        return {row[0]: row[1]["proof"] for row in connection.execute(statement)}


@retried
def has_moved(attachment_id: str) -> bool:
    """Return whether an attachment has an event of a finished move."""
    statement = sa.select(_EVENTS.c.id).where(
        _EVENTS.c.attachment_id == attachment_id, _EVENTS.c.type == MOVE_FINISHED
    )
    with session.reader() as connection:
        return connection.execute(statement.limit(1)).first() is not None


@retried
def list_fenced(host: str, since: datetime.datetime) -> list[FencedRow]:
    """Return the attachments of a host that were fenced, each once, by its last event.

    :param since: when the host was fenced
    """
    statement = (
        sa.select(_EVENTS.c.attachment_id, _EVENTS.c.volume_id, _EVENTS.c.details)
        .where(_EVENTS.c.created_at >= since - _CLOCK_MARGIN, _EVENTS.c.type == FENCED)
        .order_by(_EVENTS.c.id)
    )
    fenced: dict[str, FencedRow] = {
        row["attachment_id"]: {
            "attachment_id": row["attachment_id"],
            "volume_id": row["volume_id"],
            "instance_uuid": row["details"].get("instance_uuid"),
            "proof": row["details"]["proof"],
        }
        for row in session.fetch_all(statement, EventRow)
        if any(
            host_identity.is_same_name(row["details"].get(name) or "", host)
            for name in ("host", "agent")
        )
    }
    return list(fenced.values())


class _Thread(threading.local):
    collected: list[dict[str, Any]] | None = None


_thread = _Thread()


@contextlib.contextmanager
def inserted_together(connection: sa.Connection) -> Iterator[None]:
    """Add the events of the block to a transaction, by one statement at its end."""
    collected: list[dict[str, Any]] = []
    _thread.collected = collected
    try:
        yield
    finally:
        _thread.collected = None
    if collected:
        connection.execute(sa.insert(_EVENTS), collected)


def event_type(event: Event, target: AttachmentState | None) -> str:
    """Return the type of the event of a transition."""
    if event is Event.REFUSE_DETACH:
        return DETACH_REFUSED
    return DELETED if target is None else target.value


def _details(row: EventSource, error: str | None) -> dict[str, Any]:
    """Return the known details: host, instance, caller, process, error, steps."""
    known = {name: row.get(name) for name in _ROW_DETAILS}
    context = oslo_context.get_current()
    if context is not None:
        known |= {name: getattr(context, name, None) for name in _CONTEXT_DETAILS}
    known["process"] = f"{CONF.host}:{os.getpid()}"
    known["error"] = error
    if (operation := tracing.current()) is not None:
        known["began_at"] = operation.began_at.isoformat()
        known["seconds"] = round(operation.seconds, 6)
        known["steps"] = [
            {"name": item.name, "seconds": round(item.seconds, 6), "failed": item.failed}
            for item in operation.steps
        ]
    return {name: value for name, value in known.items() if value is not None}


_ROW_DETAILS: Final = ("host", "instance_uuid", "agent", "device", "move_from")
_LAST_CONTENT: Final = ("user_id", "mode", "mountpoint", "attached_at", "created_at")
_CONTEXT_DETAILS: Final = ("user_id", "request_id", "global_request_id")


def _last_content(row: EventSource) -> dict[str, Any]:
    """Return the columns of an attachment that deleted_attachments.py reads; times as text."""
    values = {name: row.get(name) for name in _LAST_CONTENT}
    return {
        name: value.isoformat() if isinstance(value, datetime.datetime) else value
        for name, value in values.items()
        if value is not None
    }


def list_reserved(
    connection: sa.Connection, attachment_ids: Collection[str], global_request_id: str
) -> set[str]:
    """Return which of these attachments were reserved by a request with this global id."""
    statement = sa.select(_EVENTS.c.attachment_id, _EVENTS.c.details).where(
        _EVENTS.c.attachment_id.in_(attachment_ids),
        _EVENTS.c.type == AttachmentState.RESERVED.value,
    )
    return {
        attachment_id
        for attachment_id, details in connection.execute(statement)
        if details.get("global_request_id") == global_request_id
    }


@retried
def sequence() -> Sequence:
    """Return the range of events that can be read by now."""
    with session.reader() as connection:
        return _fetch_sequence(connection, _SEQUENCE)


def assign_sequence(most_batches: float = MAX_BATCHES) -> Sequence:
    """Assign a revision to events committed until now, and return the range to read.

    :param most_batches: those after so many batches get theirs later; ``inf``: all get theirs now
    """
    now, more = _read_sequence()
    while more and most_batches > 0:
        now, more = _assign_batch()
        most_batches -= 1
    return now


@retried
def _read_sequence() -> tuple[Sequence, bool]:
    """Return the range to read, and whether an event has no revision yet."""
    with session.reader() as connection:
        assigned, purged, more = connection.execute(_SEQUENCE_AND_UNASSIGNED).one()
    return Sequence(assigned, purged), bool(more)


@retried
def _assign_batch() -> tuple[Sequence, bool]:
    """Do as :func:`assign_sequence`, for at most BATCH events; return whether there may be
    more.
    """
    with session.writer() as connection:
        # After this lock is acquired, the revisions that other processes assigned are visible.
        now = _fetch_sequence(connection, _SEQUENCE.with_for_update())
        new = connection.execute(_UNASSIGNED).scalars().all()
        if not new:
            return now, False
        numbers = {number: now.assigned + item for item, number in enumerate(new, 1)}
        connection.execute(
            # By their ids alone: MariaDB might look for rows without a revision, and wait for
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
def list_after(place: int, limit: int, project_id: str | None = None) -> list[NumberedEventRow]:
    """Return the events after a revision, in order.

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
    return session.fetch_all(statement, NumberedEventRow)


def list_of_attachment(attachment_id: str, project_id: str | None) -> list[NumberedEventRow]:
    """Return the events of an attachment, in order; the attachment itself may be deleted.

    Events without a revision get theirs first: each is shown with the number that it keeps.

    :param project_id: only if it belongs to this project; None: of any project
    :raises Unavailable: one of them has no revision, as thousands of others come first
    """
    assign_sequence()
    found = _list_of_attachment(attachment_id, project_id)
    if any(row["revision"] is None for row in found):
        raise exception.Unavailable(
            reason="Events of this attachment get their revisions soon. Try again in some seconds."
        )
    return found


@retried
def _list_of_attachment(attachment_id: str, project_id: str | None) -> list[NumberedEventRow]:
    statement = (
        sa.select(_EVENTS)
        .where(_EVENTS.c.attachment_id == attachment_id)
        .order_by(_EVENTS.c.revision)
    )
    if project_id is not None:
        statement = statement.where(_EVENTS.c.project_id == project_id)
    return session.fetch_all(statement, NumberedEventRow)


def purge(before: datetime.datetime, limit: int) -> int:
    """Remove events that are older than this; events without a revision get theirs first.

    :param limit: how many at most, the oldest first
    :returns: how many were removed
    """
    assign_sequence(math.inf)
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
        # Revisions end at one point, even if clocks were wrong.
        result = connection.execute(sa.delete(_EVENTS).where(_EVENTS.c.revision <= last))
        purged = max(now.purged, last)
        connection.execute(
            sa.update(_EVENT_SEQUENCE).where(_EVENT_SEQUENCE.c.id == 1).values(purged=purged)
        )
    return result.rowcount


def _fetch_sequence(connection: sa.Connection, statement: sa.Select[Any]) -> Sequence:
    return Sequence(*connection.execute(statement).one())

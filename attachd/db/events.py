# SPDX-License-Identifier: Apache-2.0
"""What becomes of attachments: told in the transaction that does it, kept for some time.

:func:`tell` adds an event where an attachment moves; ``events`` is an outbox.  An event has no
place at first: of two transactions, that which drew the lower number may be the last to commit,
and who has read up to the higher one would never see it.  So :func:`give_places` numbers what is
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
from attachd.db import api, models
from attachd.db.prepared import Prepared
from attachd.states import AttachmentState, Event
from attachd.telemetry import step_timer

Row = dict[str, Any]
_T = models.events
_P = models.event_places

KEPT: Final = "kept"
DELETED: Final = "deleted"
TYPES: Final = (*(state.value for state in AttachmentState), KEPT, DELETED)
"""What can have become of an attachment: an inner state, kept by its host, or deleted."""

BATCH = 500
"""How many get their places in one transaction."""

_INSERT = Prepared(sa.insert(_T))
_NEW = sa.select(_T.c.id).where(_T.c.revision.is_(None)).order_by(_T.c.id).limit(BATCH)
_PLACES = sa.select(_P.c.given, _P.c.forgotten).where(_P.c.id == 1)
_PLACES_AND_NEWS = _PLACES.add_columns(sa.exists().where(_T.c.revision.is_(None)))


class Places(NamedTuple):
    """What there is to read.

    :ivar given: the place of the last event
    :ivar forgotten: the place of the last one that is not kept any more; those behind it are
    """

    given: int
    forgotten: int


def tell(
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
    _INSERT.run(
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


def type_of(event: Event, target: AttachmentState | None) -> str:
    """Return what an attachment's move along an arrow is told as."""
    if event is Event.KEEP:
        return KEPT
    return DELETED if target is None else target.value


def _details(row: Mapping[str, Any], error: str | None) -> Row:
    """Return what is known, without what is not: host, instance, who asked, who did it, steps."""
    known = {name: row.get(column) for name, column in _OF_THE_ROW.items()}
    context = oslo_context.get_current()
    if context is not None:
        known |= {name: getattr(context, name, None) for name in _OF_THE_CONTEXT}
    known["process"] = f"{CONF.host}:{os.getpid()}"
    known["error"] = error
    if (at := step_timer.current()) is not None:
        known["began_at"] = at.began_at.isoformat()
        known["seconds"] = round(at.seconds, 6)
        known["steps"] = [
            {"name": each.name, "seconds": round(each.seconds, 6), "failed": each.failed}
            for each in at.steps
        ]
    return {name: value for name, value in known.items() if value is not None}


_OF_THE_ROW: Final = {"host": "host", "instance_uuid": "instance_uuid", "agent": "agent"}
_OF_THE_CONTEXT: Final = ("user_id", "request_id", "global_request_id")


@api.retried
def places() -> Places:
    """Return what there is to read by now."""
    with api.reader() as connection:
        return _places(connection, _PLACES)


def give_places() -> Places:
    """Give all that was committed until now its place, and return what there is to read."""
    now, more = _look()
    while more:
        now, more = _give_some_places()
    return now


@api.retried
def _look() -> tuple[Places, bool]:
    """Return what there is to read, and whether something has no place yet."""
    with api.reader() as connection:
        given, forgotten, more = connection.execute(_PLACES_AND_NEWS).one()
    return Places(given, forgotten), bool(more)


@api.retried
def _give_some_places() -> tuple[Places, bool]:
    """Do as :func:`give_places`, but for no more than BATCH; return whether there may be more."""
    with api.writer() as connection:
        # Behind this lock, whatever others have numbered is seen to have its number.
        now = _places(connection, _PLACES.with_for_update())
        new = connection.execute(_NEW).scalars().all()
        if not new:
            return now, False
        numbers = {number: now.given + each for each, number in enumerate(new, 1)}
        connection.execute(
            # By their ids alone: MariaDB might look for those without a place, and wait for
            # transactions that are about to add one.
            sa.update(_T)
            .where(_T.c.id.in_(numbers))
            .values(revision=sa.case(numbers, value=_T.c.id))
        )
        given = now.given + len(new)
        connection.execute(sa.update(_P).where(_P.c.id == 1).values(given=given))
        return Places(given, now.forgotten), len(new) == BATCH


@api.retried
def after(place: int, most: int, project_id: str | None = None) -> list[Row]:
    """Return the events behind a place, in order.

    :param most: how many at most
    :param project_id: only of this project; None: of all
    """
    wanted = sa.select(_T).where(_T.c.revision > place).order_by(_T.c.revision).limit(most)
    if project_id is not None:
        wanted = wanted.where(_T.c.project_id == project_id)
    return _rows(wanted)


@api.retried
def of_attachment(attachment_id: str, project_id: str | None) -> list[Row]:
    """Return what has become of an attachment, in order; it may be gone itself.

    :param project_id: only if it belongs to this project; None: whomever it belongs to
    """
    wanted = sa.select(_T).where(_T.c.attachment_id == attachment_id).order_by(_T.c.id)
    if project_id is not None:
        wanted = wanted.where(_T.c.project_id == project_id)
    return _rows(wanted)


def forget(before: datetime.datetime, most: int) -> int:
    """Remove what is older than this; what nobody has read yet gets its place first.

    :param most: how many at most, the oldest first
    :returns: how many
    """
    give_places()
    return _forget(before, most)


@api.retried
def _forget(before: datetime.datetime, most: int) -> int:
    old = (
        sa.select(_T.c.revision)
        .where(_T.c.revision.is_not(None), _T.c.created_at < before)
        .order_by(_T.c.revision)
        .limit(most)
    )
    with api.writer() as connection:
        now = _places(connection, _PLACES.with_for_update())
        last = max(connection.execute(old).scalars(), default=None)
        if last is None:
            return 0
        # Places end at one point, whatever clocks have said.
        done = connection.execute(sa.delete(_T).where(_T.c.revision <= last))
        forgotten = max(now.forgotten, last)
        connection.execute(sa.update(_P).where(_P.c.id == 1).values(forgotten=forgotten))
    return done.rowcount


def _places(connection: sa.Connection, wanted: sa.Select[Any]) -> Places:
    return Places(*connection.execute(wanted).one())


def _rows(wanted: sa.Select[Any]) -> list[Row]:
    with api.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(wanted)]

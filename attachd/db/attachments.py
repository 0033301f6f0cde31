# SPDX-License-Identifier: Apache-2.0
"""The attachments table: every move a compare-and-swap; used by the objects of that name.

Each writing function is one transaction.  It takes the volume's row first, so that all moves of
one volume line up behind each other and what is derived from its attachments is derived from
what is there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import agents, api, leases, models, sharing_rules, twins
from attachd.db import attachment_statements as statements
from attachd.db import attachment_steps as steps
from attachd.db.attachment_steps import Guard, Moved
from attachd.db.leases import Lease
from attachd.states import AttachmentKind, AttachmentState, Event

__all__ = [
    "LOST",
    "Guard",
    "Moved",
    "complete",
    "get",
    "live_of_backend",
    "move",
    "move_alone",
    "of_volumes",
    "reserve",
    "to_recover",
]

Row = dict[str, Any]

LOST: Final = (exception.InvalidTransition, exception.NotFound, exception.TakenOver)
"""What it raises to write down how work ended that somebody else has taken over."""

_T = models.attachments

_UNREAD: Final = {"state": "in other hands"}
_LOCK = statements.LOCK_VOLUME
_LOCKING = {Event.CONNECT: statements.LOCK_VOLUME_TO_CONNECT}
_BEGINNINGS = frozenset({Event.CONNECT, Event.DISCONNECT})
_TRANSITIONAL = (AttachmentState.CONNECTING, AttachmentState.DISCONNECTING)


@api.retried
def reserve(
    volume_id: str,
    values: Mapping[str, Any],
    denied_rule: str | None = None,
    first: api.First | None = None,
) -> Row:
    """Take the volume and store a reservation of it, or return the twin that is there already.

    :param values: columns of the new row; ``state`` and ``volume_id`` are set here, and ``id``
        where it is not given.  With ``connector`` it may have a twin, see twins.of()
    :param denied_rule: the rule that denies the caller to share the volume, if one does
    :param first: what the transaction does first, for a request with a key: that has no twin
    :raises VolumeNotFound: there is no such volume any more
    :raises VolumeNotAvailable: somebody else was faster, or the volume is in no state for it
    :raises AttachmentLimitExceeded: there are as many attachments as may be
    :raises InvalidVolumeAttachMode: it may only be read, and was to be written
    :raises Forbidden: somebody else is there already, and ``denied_rule`` names a rule
    :raises AgentNotFound: ``agent`` is forgotten by now
    """
    row = steps.new_row(volume_id, AttachmentKind.ATTACHMENT, values)
    row["state"] = AttachmentState.RESERVED.value
    with api.writer() as connection:
        if first is not None:
            first(connection)
        if not _take_free(connection, volume_id) and (
            twin := _join(connection, row, denied_rule, may_be_there=first is None)
        ):
            return twin
        if row.get("agent") is not None:
            agents.keep(connection, row["agent"])
        steps.insert(connection, row)
    return row


def _take_free(connection: sa.Connection, volume_id: str) -> bool:
    the = {"the_id": volume_id, "updated_at": models.now()}
    return statements.TAKE_FREE_VOLUME.run(connection, the) == 1


def _join(
    connection: sa.Connection, row: Row, denied_rule: str | None, *, may_be_there: bool
) -> Row | None:
    """Allow one more attachment beside those that are there, or say who holds the volume.

    :returns: the attachment's twin, instead, if it may have one
    """
    wanted = statements.LOCK_VOLUME_TO_JOIN
    volume, there = steps.locked(connection, row["volume_id"], wanted)
    if may_be_there and (twin := twins.of(row, there)):
        return twin
    sharing_rules.check_join(volume, there, row, denied_rule)
    sharing_rules.mode(volume, row, there, row.get("asked_mode"))
    steps.store(connection, volume, [*there, row], joined=True)
    return None


@api.retried
def move(
    attachment_id: str,
    volume_id: str,
    event: Event,
    values: Mapping[str, Any] | None = None,
    guard: Guard | None = None,
    generation: int | None = None,
    lease: Lease | None = None,
    *,
    last: bool = False,
) -> Moved:
    """Move an attachment along one arrow of the table, and its volume with it.

    :param values: columns to store with the move
    :param guard: sees everything under the volume's lock and may forbid the move
    :param generation: only if the row still has this one: the caller still owns it
    :param lease: of the work that this is part of; the first move takes it
    :param last: the work ends with this move, and gives the lease back
    :raises AttachmentNotFound: it is gone
    :raises leases.Held: another process works on the volume
    :raises TakenOver: ... and has taken it from the caller
    :raises InvalidTransition: it is in no state for this event, or owned by somebody else
    """
    with api.writer() as connection:
        volume = steps.lock_volume(connection, volume_id, _LOCKING.get(event, _LOCK))
        stored = leases.claim(connection, volume, lease) if lease else {}
        rows = steps.of_volume(connection, volume_id)
        mine = next((row for row in rows if row["id"] == attachment_id), None)
        if mine is None:
            raise exception.AttachmentNotFound(attachment_id=attachment_id)
        own = {"owner": lease.holder} if lease and event in _BEGINNINGS else {}
        ended = {"lease_holder": None} if last else {}
        moved = steps.move(
            connection,
            volume,
            rows,
            mine,
            event,
            {**(values or {}), **own},
            guard,
            generation,
            {**stored, **ended},
        )
    if lease:
        leases.had(lease, stored, ended=last)
    return moved


@api.retried
def move_alone(
    row: Row,
    event: Event,
    values: Mapping[str, Any],
    generation: int,
    lease: Lease | None = None,
) -> None:
    """Move an attachment along an arrow that changes nothing for its volume, and end the work.

    :param row: as it was left when the work began
    :param lease: which is given back
    :raises TakenOver: somebody else works on the volume by now
    :raises InvalidTransition: it is in no state for this event, or owned by somebody else
    """
    assert states.preserves_status(event), event
    with api.writer() as connection:
        if lease:
            leases.end(connection, lease)
        steps.swap(connection, {**row, **_UNREAD}, event, dict(values), generation)
    if lease:
        leases.had(lease, {}, ended=True)


def complete(row: Row) -> None:
    """Move an attachment along COMPLETE, and its volume with it, without reading either.

    :param row: as it was read; its state may be another one by now
    :raises: as :func:`move`
    """
    try:
        _complete(row)
    except exception.InvalidTransition:
        move(row["id"], row["volume_id"], Event.COMPLETE)  # knows what state it is in, or was


@api.retried
def _complete(row: Row) -> None:
    with api.writer() as connection:
        the = {"the_id": row["volume_id"], "updated_at": models.now()}
        statements.STORE_ATTACHED.run(connection, the)
        unread = {**row, **_UNREAD}
        steps.swap(connection, unread, Event.COMPLETE, {}, None, statements.COMPLETE_FIRST)


def end(begun: Moved, lease: Lease) -> Moved:
    """Remove an attachment whose host is shut out, and end the work on it.

    Where it was alone with its volume, and nothing of the volume has changed since, nothing has
    to be read again: its row says when it was changed last.

    :param begun: what the move along DISCONNECT left behind
    :raises: as :func:`move`
    """
    row = begun.attachment
    if not begun.others and row["kind"] in states.VISIBLE_KINDS and "updated_at" in begun.volume:
        try:
            return _end_alone(begun, lease)
        except _Changed:
            pass
    return move(
        row["id"],
        row["volume_id"],
        Event.REVOKED,
        generation=row["generation"],
        lease=lease,
        last=True,
    )


class _Changed(Exception):
    """The volume is not as it was."""


@api.retried
def _end_alone(begun: Moved, lease: Lease) -> Moved:
    volume, row = dict(begun.volume), dict(begun.attachment)
    source = AttachmentState(row["state"])
    changed = steps.consequences(volume, row, source, Event.REVOKED)
    derived = states.derive(states.VolumeState(changed["state"]), ())
    volume |= {**changed, **derived._asdict(), "leaving": 0, "lease_holder": None}
    volume["updated_at"] = models.now()
    stored = {name: volume[name] for name in (*changed, *_ENDED)}
    seen = {f"the_{name}": begun.volume[name] for name in statements.SEEN}
    with api.writer() as connection:
        if statements.UPDATE_VOLUME_AS_SEEN.run(connection, seen | stored) != 1:
            raise _Changed
        steps.swap(connection, row, Event.REVOKED, {}, row["generation"])
    leases.had(lease, {}, ended=True)
    return Moved(volume, row, [], source)


_ENDED: Final = (*states.VolumeStatus._fields, "leaving", "lease_holder", "updated_at")


@api.retried
def get(attachment_id: str, project_id: str | None) -> Row:
    """Return one attachment and what matters of its volume.

    :param project_id: only if it belongs to this project; None: whomever it belongs to
    :returns: the row, and ``volume_host``, ``volume_state``, ``volume_status``,
        ``volume_multiattach``
    :raises AttachmentNotFound: there is none
    """
    wanted, the = statements.GET, {"the_id": attachment_id}
    if project_id is not None:
        wanted, the = statements.GET_IN_PROJECT, {**the, "the_project": project_id}
    with api.reader() as connection:
        row = wanted.row(connection, the)
    if row is None:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    return row


@api.retried
def of_volumes(volume_ids: Sequence[str]) -> list[Row]:
    """Return all attachments of some volumes, secrets included, oldest first."""
    return _rows(sa.select(_T).where(_T.c.volume_id.in_(volume_ids)))


@api.retried
def to_recover(backend: str, holder: str) -> list[Row]:
    """Return what managers of ``host@backend`` have left half-way, oldest first.

    :param holder: the process that is going to finish it: what another living one works on is
        left out
    :returns: rows as of :func:`get`, with ``orphaned``: whether a process that is dead by now
        worked on the volume
    """
    return _rows(
        statements.WITH_VOLUME.add_columns(leases.is_orphaned(holder).label("orphaned")).where(
            _T.c.state.in_(_TRANSITIONAL), models.served_by(backend), leases.is_free(holder)
        )
    )


@api.retried
def live_of_backend(backend: str) -> list[Row]:
    """Return whatever a host reaches at ``host@backend``, or is about to, oldest first.

    :returns: rows as of :func:`get`
    """
    return _rows(
        statements.WITH_VOLUME.where(_T.c.state.in_(states.LIVE), models.served_by(backend))
    )


def _rows(statement: sa.Select[Any]) -> list[Row]:
    with api.reader() as connection:
        found = connection.execute(statement.order_by(_T.c.created_at, _T.c.id))
        return [dict(row._mapping) for row in found]

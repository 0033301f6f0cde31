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
from attachd.db import models
from attachd.db.agents import store as agents
from attachd.db.attachments import duplicates, multiattach_rules, statements
from attachd.db.attachments import transitions as steps
from attachd.db.attachments.transitions import Guard, Moved
from attachd.db.cluster import leases
from attachd.db.cluster.leases import Lease
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import AttachmentKind, AttachmentState, Event

Row = dict[str, Any]

TAKEOVER_ERRORS: Final = (exception.InvalidTransition, exception.NotFound, exception.TakenOver)
"""What it raises to write down how work ended that somebody else has taken over."""

_ATTACHMENTS = models.attachments

_UNREAD: Final = {"state": "in other hands"}
_LOCK_VOLUME = statements.LOCK_VOLUME
_LOCK_STATEMENTS = {Event.CONNECT: statements.LOCK_VOLUME_TO_CONNECT}
_IN_PROGRESS = (AttachmentState.CONNECTING, AttachmentState.DISCONNECTING)


@retried
def reserve(
    volume_id: str,
    values: Mapping[str, Any],
    denied_rule: str | None = None,
    first: session.Precondition | None = None,
) -> Row:
    """Take the volume and store a reservation of it, or return the twin that is there already.

    :param values: columns of the new row; ``state`` and ``volume_id`` are set here, and ``id``
        where it is not given.  With ``connector`` it may have a twin, see
        duplicates.find_duplicate()
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
    with session.writer() as connection:
        if first is not None:
            first(connection)
        if not _reserve_free_volume(connection, volume_id) and (
            twin := _join_holders(connection, row, denied_rule, may_be_there=first is None)
        ):
            return twin
        if row.get("agent") is not None:
            agents.lock_for_share(connection, row["agent"])
        steps.insert(connection, row)
    return row


def _reserve_free_volume(connection: sa.Connection, volume_id: str) -> bool:
    params = {"match_id": volume_id, "updated_at": models.now()}
    return statements.RESERVE_FREE_VOLUME.execute(connection, params) == 1


def _join_holders(
    connection: sa.Connection, row: Row, denied_rule: str | None, *, may_be_there: bool
) -> Row | None:
    """Allow one more attachment beside those that are there, or say who holds the volume.

    :returns: the attachment's twin, instead, if it may have one
    """
    statement = statements.LOCK_VOLUME_TO_RESERVE
    volume, holders = steps.lock_with_rows(connection, row["volume_id"], statement)
    if may_be_there and (twin := duplicates.find_duplicate(row, holders)):
        return twin
    multiattach_rules.check_reserve(volume, holders, row, denied_rule)
    multiattach_rules.decide_mode(volume, row, holders, row.get("asked_mode"))
    steps.update_volume(connection, volume, [*holders, row], joined=True)
    return None


@retried
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
    :raises leases.LeaseHeld: another process works on the volume
    :raises TakenOver: ... and has taken it from the caller
    :raises InvalidTransition: it is in no state for this event, or owned by somebody else
    """
    with session.writer() as connection:
        volume = steps.lock_volume(
            connection, volume_id, _LOCK_STATEMENTS.get(event, _LOCK_VOLUME)
        )
        stored = leases.acquire(connection, volume, lease) if lease else {}
        rows = steps.list_rows(connection, volume_id)
        current = next((row for row in rows if row["id"] == attachment_id), None)
        if current is None:
            raise exception.AttachmentNotFound(attachment_id=attachment_id)
        ended = {"lease_holder": None} if last else {}
        moved = steps.move(
            connection,
            volume,
            rows,
            current,
            event,
            values or {},
            guard,
            generation,
            {**stored, **ended} if lease else None,
        )
    if lease:
        leases.confirm(lease, stored, ended=last)
    return moved


@retried
def move_without_volume(
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
    with session.writer() as connection:
        if lease:
            leases.release_with_result(connection, lease)
        steps.compare_and_swap(connection, {**row, **_UNREAD}, event, dict(values), generation)
    if lease:
        leases.confirm(lease, {}, ended=True)


def complete(row: Row) -> None:
    """Move an attachment along COMPLETE, and its volume with it, without reading either.

    :param row: as it was read; its state may be another one by now
    :raises: as :func:`move`
    """
    try:
        _complete_first(row)
    except exception.InvalidTransition:
        move(row["id"], row["volume_id"], Event.COMPLETE)  # knows what state it is in, or was


@retried
def _complete_first(row: Row) -> None:
    with session.writer() as connection:
        params = {"match_id": row["volume_id"], "updated_at": models.now()}
        statements.SET_VOLUME_ATTACHED.execute(connection, params)
        unread = {**row, **_UNREAD}
        steps.compare_and_swap(
            connection, unread, Event.COMPLETE, {}, None, statements.COMPLETE_FIRST
        )


def finish_disconnect(begun: Moved, lease: Lease) -> Moved:
    """Remove an attachment whose host is shut out, and end the work on it.

    Where it was alone with its volume, and nothing of the volume has changed since, nothing has
    to be read again: its row says when it was changed last.

    :param begun: what the move along DISCONNECT left behind
    :raises: as :func:`move`
    """
    row = begun.attachment
    if not begun.others and row["kind"] in states.VISIBLE_KINDS and "updated_at" in begun.volume:
        try:
            return _finish_unchanged(begun, lease)
        except _VolumeChanged:
            pass
    return move(
        row["id"],
        row["volume_id"],
        Event.REVOKED,
        generation=row["generation"],
        lease=lease,
        last=True,
    )


class _VolumeChanged(Exception):
    """The volume is not as it was."""


@retried
def _finish_unchanged(begun: Moved, lease: Lease) -> Moved:
    volume, row = dict(begun.volume), dict(begun.attachment)
    source = AttachmentState(row["state"])
    changed = steps.volume_changes(volume, row, source, Event.REVOKED)
    derived = states.derive(states.VolumeState(changed["state"]), ())
    volume |= {**changed, **derived._asdict(), "pending_detaches": 0, "lease_holder": None}
    volume["updated_at"] = models.now()
    stored = {name: volume[name] for name in (*changed, *_FINISHED_COLUMNS)}
    seen = {f"match_{name}": begun.volume[name] for name in statements.SEEN_COLUMNS}
    with session.writer() as connection:
        if statements.UPDATE_VOLUME_IF_UNCHANGED.execute(connection, seen | stored) != 1:
            raise _VolumeChanged
        steps.compare_and_swap(connection, row, Event.REVOKED, {}, row["generation"])
    leases.confirm(lease, {}, ended=True)
    return Moved(volume, row, [], source)


_FINISHED_COLUMNS: Final = (
    *states.VolumeStatus._fields,
    "pending_detaches",
    "lease_holder",
    "updated_at",
)


@retried
def get(attachment_id: str, project_id: str | None) -> Row:
    """Return one attachment and what matters of its volume.

    :param project_id: only if it belongs to this project; None: whomever it belongs to
    :returns: the row, and ``volume_host``, ``volume_state``, ``volume_status``,
        ``volume_multiattach``
    :raises AttachmentNotFound: there is none
    """
    statement, params = statements.GET, {"match_id": attachment_id}
    if project_id is not None:
        statement, params = statements.GET_IN_PROJECT, {**params, "match_project": project_id}
    with session.reader() as connection:
        row = statement.fetch_one(connection, params)
    if row is None:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    return row


@retried
def list_of_volumes(volume_ids: Sequence[str]) -> list[Row]:
    """Return all attachments of some volumes, secrets included, oldest first."""
    return _list(sa.select(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id.in_(volume_ids)))


@retried
def list_recoverable(backend: str, holder: str) -> list[Row]:
    """Return what managers of ``host@backend`` have left half-way, oldest first.

    :param holder: the process that is going to finish it: what another living one works on is
        left out
    :returns: rows as of :func:`get`, with ``orphaned``: whether a process that is dead by now
        worked on the volume
    """
    return _list(
        statements.WITH_VOLUME.add_columns(leases.is_orphaned(holder).label("orphaned")).where(
            _ATTACHMENTS.c.state.in_(_IN_PROGRESS),
            models.on_backend(backend),
            leases.is_free(holder),
        )
    )


@retried
def list_live(backend: str) -> list[Row]:
    """Return whatever a host reaches at ``host@backend``, or is about to, oldest first.

    :returns: rows as of :func:`get`
    """
    return _list(
        statements.WITH_VOLUME.where(
            _ATTACHMENTS.c.state.in_(states.LIVE), models.on_backend(backend)
        )
    )


def _list(statement: sa.Select[Any]) -> list[Row]:
    with session.reader() as connection:
        result = connection.execute(
            statement.order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
        )
        return [dict(row._mapping) for row in result]


_VOLUMES = models.volumes

EXPIRY_BATCH = 100
"""How many are returned at once."""


@retried
def list_expired_reservations(backend: str) -> list[Row]:
    """Return reservations at ``host@backend`` that should have been connected by now.

    :returns: ``id`` and ``volume_id`` of each, the first to end first
    """
    statement = (
        sa.select(_ATTACHMENTS.c.id, _ATTACHMENTS.c.volume_id)
        .join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)
        .where(
            _ATTACHMENTS.c.expires_at <= models.now(),
            _ATTACHMENTS.c.state == AttachmentState.RESERVED.value,
            models.on_backend(backend),
        )
        .order_by(_ATTACHMENTS.c.expires_at)
        .limit(EXPIRY_BATCH)
    )
    with session.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(statement)]

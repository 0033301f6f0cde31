# SPDX-License-Identifier: Apache-2.0
"""The attachments table: every move a compare-and-swap; used by the objects of that name.

Each writing function is one transaction.  It takes the volume's row first, so that all moves of
one volume line up behind each other and what is derived from its attachments is derived from
what is there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import api, models
from attachd.db import attachment_statements as statements
from attachd.states import AttachmentState, Event, VolumeState

Row = dict[str, Any]
_T = models.attachments

now = models.now

_TRANSITIONAL = (AttachmentState.CONNECTING, AttachmentState.DISCONNECTING)


class Moved(NamedTuple):
    """What a move left behind, as read in its own transaction.

    :ivar volume: what matters of the volume's row, without names and times
    :ivar attachment: the moved row, or its last content if the move removed it
    :ivar others: the rows of the volume's other attachments, oldest first
    :ivar source: the state that the attachment was in before
    """

    volume: Row
    attachment: Row
    others: list[Row]
    source: AttachmentState


Guard = Callable[[Row, Row, Sequence[Row]], Mapping[str, Any]]
"""(volume, attachment, others) -> more values to store; raises to forbid the move."""


@api.retried
def reserve(volume_id: str, values: Mapping[str, Any]) -> Row:
    """Take the volume and store a reservation of it.

    :param values: columns of the new row; ``id``, ``state`` and ``volume_id`` are set here
    :raises VolumeNotFound: there is no such volume any more
    :raises VolumeNotFree: somebody else was faster, or the volume is in no state for it
    """
    row = {
        **values,
        "id": values.get("id") or models.new_id(),
        "volume_id": volume_id,
        "state": AttachmentState.RESERVED.value,
        "generation": 0,
        "created_at": models.now(),
    }
    with api.writer() as connection:
        if not _take_free(connection, volume_id):
            _join_holders(connection, volume_id, values.get("instance_uuid"))
        connection.execute(statements.INSERT, row)
    return row


def _take_free(connection: sa.Connection, volume_id: str) -> bool:
    taken = connection.execute(statements.TAKE_FREE_VOLUME, {"the_id": volume_id})
    return taken.rowcount == 1


def _join_holders(connection: sa.Connection, volume_id: str, instance: str | None) -> None:
    """Allow one more attachment beside those that are there, or say who holds the volume."""
    volume = _lock_volume(connection, volume_id)
    holders = _of_volume(connection, volume_id)
    if not _may_join(volume, holders, instance):
        raise _not_free(volume, holders)
    held = [*_states(holders), AttachmentState.RESERVED]
    _store_derived(connection, volume, VolumeState(volume["state"]), held)


def _may_join(volume: Row, holders: Sequence[Row], instance: str | None) -> bool:
    if volume["state"] != VolumeState.READY or volume["status"] == "error":
        return False
    if volume["multiattach"]:
        return True
    # A server that moves to another host is attached from both for a while.
    live = [row for row in holders if AttachmentState(row["state"]) not in states.UNREACHABLE]
    return not live or (
        instance is not None and all(row["instance_uuid"] == instance for row in live)
    )


def _not_free(volume: Row, holders: Sequence[Row]) -> exception.VolumeNotFree:
    named = ", ".join(
        f"attachment {row['id']}"
        + (f" of server {row['instance_uuid']}" if row["instance_uuid"] else "")
        for row in holders[:3]
        if AttachmentState(row["state"]) not in states.UNREACHABLE
    )
    return exception.VolumeNotFree(
        volume_id=volume["id"],
        status=volume["status"],
        holder=f"; it is held by {named}" if named else "",
    )


@api.retried
def move(
    attachment_id: str,
    volume_id: str,
    event: Event,
    values: Mapping[str, Any] | None = None,
    guard: Guard | None = None,
    generation: int | None = None,
) -> Moved:
    """Move an attachment along one arrow of the table, and its volume with it.

    :param values: columns to store with the move
    :param guard: sees everything under the volume's lock and may forbid the move
    :param generation: only if the row still has this one: the caller still owns it
    :raises AttachmentNotFound: it is gone
    :raises InvalidTransition: it is in no state for this event, or owned by somebody else
    """
    with api.writer() as connection:
        volume = _lock_volume(connection, volume_id)
        rows = _of_volume(connection, volume_id)
        mine = next((row for row in rows if row["id"] == attachment_id), None)
        if mine is None:
            raise exception.AttachmentNotFound(attachment_id=attachment_id)
        others = [row for row in rows if row is not mine]
        if volume["state"] == VolumeState.DELETING and mine["state"] in states.UNREACHABLE:
            # It did not keep its volume from being deleted, and goes with it: were it to count
            # again, the volume's data would be removed and its row could not.
            raise exception.Conflict(reason=f"Volume {volume_id} is being deleted.")
        source = AttachmentState(mine["state"])
        stored = dict(values or {})
        if guard is not None:
            stored.update(guard(volume, mine, others))
        target = _swap(connection, mine, event, stored, generation)
        left = _states(others) if target is None else [*_states(others), target]
        state = VolumeState(volume["state"])
        if target is None:
            state = states.after_detach(state)
        _store_derived(connection, volume, state, left)
    return Moved(volume, mine, others, source)


@api.retried
def move_alone(
    attachment_id: str, event: Event, values: Mapping[str, Any], generation: int
) -> None:
    """Move an attachment along an arrow that changes nothing for its volume: one statement.

    :raises InvalidTransition: it is in no state for this event, or owned by somebody else
    """
    assert states.keeps_wire_name(event), event
    with api.writer() as connection:
        unread = {"id": attachment_id, "state": "in other hands"}
        _swap(connection, unread, event, dict(values), generation)


def complete(attachment_id: str, volume_id: str) -> None:
    """Move an attachment along COMPLETE, and its volume with it, in two statements.

    :raises: as :func:`move`
    """
    try:
        _complete(attachment_id, volume_id)
    except exception.InvalidTransition:
        move(attachment_id, volume_id, Event.COMPLETE)  # knows what state it is in


@api.retried
def _complete(attachment_id: str, volume_id: str) -> None:
    with api.writer() as connection:
        connection.execute(statements.STORE_ATTACHED, {"the_id": volume_id})
        unread = {"id": attachment_id, "state": "in other hands"}
        _swap(connection, unread, Event.COMPLETE, {}, None)


def _swap(
    connection: sa.Connection, row: Row, event: Event, values: Row, generation: int | None
) -> AttachmentState | None:
    """Do the compare-and-swap; ``row`` is brought up to date."""
    target = states.ATTACHMENT_MOVES[event].target
    the: Row = {"the_id": row["id"]}
    statement = statements.SWAP[event]
    if generation is not None:
        statement = statements.SWAP_OWNED[event]
        the["the_generation"] = generation
    if target is not None:
        if "error" in values:
            values["error"] = models.shortened(values["error"])
        values |= {"state": target.value, "updated_at": models.now()}
        the |= values
    result = connection.execute(statement, the)
    if result.rowcount != 1:
        raise exception.InvalidTransition(
            kind="Attachment", id=row["id"], source=row["state"], event=event.value
        )
    row.update(values)
    return target


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
        row = connection.execute(wanted, the).one_or_none()
    if row is None:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    return dict(row._mapping)


@api.retried
def of_volumes(volume_ids: Sequence[str]) -> list[Row]:
    """Return all attachments of some volumes, secrets included, oldest first."""
    return _rows(sa.select(_T).where(_T.c.volume_id.in_(volume_ids)))


@api.retried
def to_recover(backend: str, untouched_for: float = 0) -> list[Row]:
    """Return what a manager of ``host@backend`` was working on, or is, oldest first.

    :param untouched_for: only rows that have not changed for so many seconds
    :returns: rows as of :func:`get`
    """
    return _rows(
        statements.WITH_VOLUME.where(
            _T.c.state.in_(_TRANSITIONAL),
            models.served_by(backend),
            *models.untouched(_T, untouched_for),
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


def _lock_volume(connection: sa.Connection, volume_id: str) -> Row:
    row = connection.execute(statements.LOCK_VOLUME, {"the_id": volume_id}).one_or_none()
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    return dict(row._mapping)


def _of_volume(connection: sa.Connection, volume_id: str) -> list[Row]:
    rows = connection.execute(statements.OF_VOLUME, {"the_id": volume_id})
    return [dict(row._mapping) for row in rows]


def _states(rows: Sequence[Row]) -> list[AttachmentState]:
    return [AttachmentState(row["state"]) for row in rows]


def _store_derived(
    connection: sa.Connection,
    volume: Row,
    state: VolumeState,
    attachments: Sequence[AttachmentState],
) -> None:
    values: Row = {"state": state.value, **states.derive(state, attachments)._asdict()}
    if values.items() <= volume.items():
        return
    values["updated_at"] = models.now()
    connection.execute(statements.UPDATE_VOLUME, {"the_id": volume["id"], **values})
    volume.update(values)

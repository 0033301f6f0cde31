# SPDX-License-Identifier: Apache-2.0
"""The steps that transactions on attachments are made of; used by attachments.py and legacy.py.

Each of them is given the connection of a transaction, which begins with :func:`lock_volume`
wherever it depends on what else there is of the volume.
"""

from collections.abc import Callable, Mapping, Sequence
import os
from typing import Any, NamedTuple

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import attachment_statements as statements
from attachd.db import models
from attachd.states import AttachmentKind, AttachmentState, Event, VolumeState

Row = dict[str, Any]

ATTACHED_MODE = "attached_mode"
"""What of a volume's administrative metadata is there as long as it is attached."""


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


def lock_volume(connection: sa.Connection, volume_id: str, event: Event | None = None) -> Row:
    """Take the volume's row for this transaction and return what matters of it.

    :param event: what is going to happen to one of its attachments: for a connect there is also
        ``front_end_qos``, what a host is to limit it to, or None
    """
    wanted = statements.LOCK_VOLUME
    if event is Event.CONNECT:
        wanted = statements.LOCK_VOLUME_TO_CONNECT
    row = connection.execute(wanted, {"the_id": volume_id}).one_or_none()
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    return dict(row._mapping)


def of_volume(connection: sa.Connection, volume_id: str) -> list[Row]:
    """Return all rows of a volume, of whatever kind, oldest first."""
    rows = connection.execute(statements.OF_VOLUME, {"the_id": volume_id})
    return [dict(row._mapping) for row in rows]


def new_row(volume_id: str, kind: AttachmentKind, values: Mapping[str, Any]) -> Row:
    """Return a row that INSERT takes; the columns that it lacks are NULL."""
    return {
        **values,
        "id": values.get("id") or models.new_id(),
        "volume_id": volume_id,
        "kind": kind.value,
        "generation": 0,
        "created_at": models.now(),
    }


def taken_over(row: Row) -> dict[str, Any]:
    """Return the columns that make this process the one that works on a row."""
    return {"owner": f"{os.uname().nodename}:{os.getpid()}", "generation": row["generation"] + 1}


def counted(rows: Sequence[Row]) -> list[Row]:
    """Return those that hold their volume: a connect that surely failed does not."""
    return [row for row in rows if AttachmentState(row["state"]) not in states.UNREACHABLE]


def shown(rows: Sequence[Row]) -> list[Row]:
    """Return those that clients know as attachments."""
    return [row for row in rows if row["kind"] in states.SHOWN]


def of_kind(rows: Sequence[Row], kind: AttachmentKind) -> list[Row]:
    """Return those of one kind."""
    return [row for row in rows if row["kind"] == kind]


def closed_with(mine: Row, others: Sequence[Row]) -> list[Row]:
    """Return the connections that end with an attachment.

    With the last one that was made by a word alone goes what nobody has said the use of, unless
    somebody is about to: no host keeps a volume that was given back.

    :param others: the volume's other rows
    """
    connections = of_kind(others, AttachmentKind.CONNECTION)
    found = [row for row in connections if row["serves"] == mine["id"]]
    claimed = of_kind(others, AttachmentKind.HOLD) or counted(shown(others))
    return found if claimed or mine["kind"] != AttachmentKind.LEGACY else connections


def check_free(volume: Row, rows: Sequence[Row], instance: str | None) -> None:
    """Let one more join those who hold a volume.

    :param instance: a server that moves to another host is attached from both for a while
    :raises VolumeNotFree: it may not
    """
    free = volume["state"] == VolumeState.READY and volume["status"] != "error"
    holders = counted(rows)
    if free and (volume["multiattach"] or not holders):
        return
    same = instance is not None and all(row["instance_uuid"] == instance for row in holders)
    if not (free and same):
        named = ", ".join(name(row) for row in holders[:3])
        raise exception.VolumeNotFree(
            volume_id=volume["id"],
            status=volume["status"],
            holder=f"; it is held by {named}" if named else "",
        )


def name(row: Row) -> str:
    """Name a row in a way that whoever is in its way can do something about it."""
    if row["kind"] == AttachmentKind.HOLD:
        return "a reservation of os-reserve"
    if row["kind"] == AttachmentKind.CONNECTION:
        return f"the connection of host {row['host']} (os-initialize_connection)"
    server = f" of server {row['instance_uuid']}" if row["instance_uuid"] else ""
    return f"attachment {row['id']}{server}"


def move(
    connection: sa.Connection,
    volume: Row,
    rows: Sequence[Row],
    mine: Row,
    event: Event,
    values: Mapping[str, Any],
    guard: Guard | None = None,
    generation: int | None = None,
) -> Moved:
    """Move one of the rows of a locked volume along an arrow, and the volume with it.

    :raises: as attachments.move()
    """
    others = [row for row in rows if row is not mine]
    if volume["state"] == VolumeState.DELETING and mine["state"] in states.UNREACHABLE:
        # It did not keep its volume from being deleted, and goes with it: were it to count
        # again, the volume's data would be removed and its row could not.
        raise exception.Conflict(reason=f"Volume {volume['id']} is being deleted.")
    source = AttachmentState(mine["state"])
    stored = dict(values)
    if guard is not None:
        stored.update(guard(volume, mine, others))
    target = swap(connection, mine, event, stored, generation)
    left = others if target is None else [*others, mine]
    store(connection, volume, left, _consequences(volume, mine, source, event))
    return Moved(volume, mine, others, source)


def _consequences(volume: Row, mine: Row, source: AttachmentState, event: Event) -> Row:
    """Return what else of the volume changes when an attachment moves."""
    changed: Row = {}
    if event is Event.COMPLETE:
        changed["leaving"] = 0
    elif event is Event.DISCONNECT and source is AttachmentState.ATTACHED:
        # Somebody had begun to detach one of them; now one is detached.
        changed["leaving"] = max(volume["leaving"] - 1, 0)
    elif event is Event.REVOKED and mine["kind"] in states.SHOWN:
        changed["state"] = states.after_detach(VolumeState(volume["state"])).value
        if ATTACHED_MODE in volume["admin_metadata"]:
            changed["admin_metadata"] = without_mode(volume["admin_metadata"])
    elif event is Event.CANCEL:
        changed["state"] = states.after_detach(VolumeState(volume["state"])).value
    return changed


def without_mode(admin_metadata: Mapping[str, str]) -> dict[str, str]:
    """Return administrative metadata as it is when the volume is not attached."""
    return {key: value for key, value in admin_metadata.items() if key != ATTACHED_MODE}


def swap(
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


def store(
    connection: sa.Connection,
    volume: Row,
    rows: Sequence[Row],
    changed: Mapping[str, Any] | None = None,
) -> None:
    """Store what changes of a volume, and what is derived from its rows; ``volume`` follows.

    :param rows: all that there are by now
    """
    wanted = {**volume, **(changed or {})}
    found = [AttachmentState(row["state"]) for row in rows]
    leaving = states.still_leaving(wanted["leaving"], found)
    derived = states.derive(VolumeState(wanted["state"]), found, leaving)
    values: Row = {**(changed or {}), "leaving": leaving, **derived._asdict()}
    if values.items() <= volume.items():
        return
    values["updated_at"] = models.now()
    connection.execute(statements.UPDATE_VOLUME, {"the_id": volume["id"], **values})
    volume.update(values)

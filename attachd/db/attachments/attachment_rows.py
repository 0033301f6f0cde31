# SPDX-License-Identifier: Apache-2.0
"""The rows of a volume's attachments: which of them hold it, and how transactions change them.

Each function with a connection is a step of a transaction, which begins with :func:`lock_volume`
where it depends on the other rows of the volume.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
import secrets
from typing import Any, NamedTuple

import sqlalchemy as sa

from attachd import exception, host_identity, states
from attachd.db import models
from attachd.db.attachments import events, statements
from attachd.db.engine.compiled import CompiledSelect, CompiledStatement
from attachd.db.row_types import AttachmentRow, AttachmentVersion, LockedVolumeRow, VolumeRow
from attachd.db.secrets import encryption
from attachd.states import AttachmentKind, AttachmentState, Event, VolumeState

_ATTACHMENTS = models.attachments

ATTACHED_MODE = "attached_mode"
"""The key of a volume's admin_metadata that is present while the volume is attached."""


_RANDOM_GENERATIONS = 2**30
"""Half of what the column can store; the other half is for the increments."""

# The attachment goes, now or as soon as its host has released the device.
_DETACHING = frozenset({Event.DISCONNECT, Event.WITHDRAW})

# States for which os-begin_detaching may have been called.
_COUNTED = frozenset({AttachmentState.ATTACHED, AttachmentState.DISCONNECT_FAILED})


class Transitioned(NamedTuple):
    """The result of a transition, as read in its own transaction.

    :ivar volume: the volume's row, without its times
    :ivar attachment: its row, or the last content if the transition removed it
    :ivar others: the rows of the volume's other attachments, oldest first
    :ivar source: the state of the attachment before
    """

    volume: LockedVolumeRow
    attachment: AttachmentRow
    others: list[AttachmentRow]
    source: AttachmentState


class Refusal(Exception):
    """A guard refuses a transition with this, or an AttachdError; it has written nothing."""


Guard = Callable[["LockedVolume"], Mapping[str, Any]]
"""LockedVolume -> more values to store; raises to forbid the transition."""


class LockedVolume(NamedTuple):
    """A volume whose row a transaction has locked, and one of its attachments.

    :ivar connection: of the transaction
    :ivar volume: the columns that lock_volume() reads
    :ivar attachment: the row in question, as stored or as it is going to be stored
    :ivar others: the rows of the volume's other attachments, oldest first
    """

    connection: sa.Connection
    volume: LockedVolumeRow
    attachment: AttachmentRow
    others: Sequence[AttachmentRow]


def holding(rows: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return the rows that hold their volume: a connect that surely failed does not."""
    return [row for row in rows if AttachmentState(row["state"]) not in states.INACTIVE]


def visible(rows: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return the rows that clients see as attachments."""
    return [row for row in rows if row["kind"] in states.VISIBLE_KINDS]


def of_kind(rows: Sequence[AttachmentRow], kind: AttachmentKind) -> list[AttachmentRow]:
    """Return the rows of one kind."""
    return [row for row in rows if row["kind"] == kind]


def not_detaching(rows: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return the rows that are not being removed."""
    return [row for row in rows if row["state"] not in states.DETACHING]


def of_user(rows: Sequence[AttachmentRow], user_id: str | None) -> list[AttachmentRow]:
    """Return the rows that one user created."""
    return [row for row in rows if row["user_id"] == user_id]


def of_others(current: AttachmentRow, rows: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return the rows that are not at the other end of a row's move; see moves.py."""
    ends = {current.get("move_from"), current.get("id")} - {None}
    return [row for row in rows if not ends & {row["id"], row.get("move_from")}]


def is_of_compute(row: Mapping[str, Any]) -> bool:
    """Return whether Compute has made an attachment for a server, and keeps its id."""
    return bool(row.get("by_service") and row.get("instance_uuid"))


def may_write(row: AttachmentRow) -> bool:
    """Return whether the host of a row may write, now or at the end of its move."""
    waits = row.get("move_from") and row.get("own_connection")
    return bool(waits or row["mode"] == "rw")


def describe(row: AttachmentRow) -> str:
    """Describe a row in a message, so that its reader can act on it."""
    if row["kind"] == AttachmentKind.HOLD:
        return "a reservation of os-reserve"
    if row["kind"] == AttachmentKind.CONNECTION:
        return f"the connection of host {row['host']} (os-initialize_connection)"
    server = f" of server {row['instance_uuid']}" if row["instance_uuid"] else ""
    return f"attachment {row['id']}{server}"


def describe_all(attachments: Sequence[AttachmentRow]) -> str:
    """Describe the holders in a message, five at most."""
    return ", ".join(
        f"{describe(row)} ({AttachmentState(row['state']).wire})" for row in attachments[:5]
    )


def check_detached(row: VolumeRow, attachments: Sequence[AttachmentRow]) -> None:
    """Check that a volume that is to be removed has no holder; raises InvalidVolume."""
    if attachments:
        raise exception.InvalidVolume(
            reason=f"Volume {row['id']} cannot be removed while it has attachments: "
            f"{describe_all(attachments)}."
        )


def lock_volume(
    connection: sa.Connection,
    volume_id: str,
    statement: CompiledSelect[LockedVolumeRow] = statements.LOCK_VOLUME,
) -> LockedVolumeRow:
    """Lock the volume's row for this transaction and return the columns that matter.

    :param statement: LOCK_VOLUME_TO_RESERVE also reads ``type_specs``, the extra specs of its
        type, LOCK_VOLUME_TO_DISCONNECT what a driver gets, and LOCK_VOLUME_TO_CONNECT also
        ``front_end_qos``, the limits that a host enforces, or None
    """
    row = statement.fetch_one(connection, {"match_id": volume_id})
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    return row


def check_project(volume: LockedVolumeRow, project_id: str) -> None:
    """Check that a volume still belongs to the project that was allowed to attach it.

    :raises VolumeNotFound: it has been transferred to another project since
    """
    if volume["project_id"] != project_id:
        raise exception.VolumeNotFound(volume_id=volume["id"])


def list_rows(connection: sa.Connection, volume_id: str) -> list[AttachmentRow]:
    """Return all rows of a volume, of all kinds, oldest first."""
    return statements.LIST_OF_VOLUME.fetch_all(connection, {"match_id": volume_id})


def lock_with_rows(
    connection: sa.Connection,
    volume_id: str,
    statement: CompiledSelect[LockedVolumeRow] = statements.LOCK_VOLUME,
) -> tuple[LockedVolumeRow, list[AttachmentRow]]:
    """Lock the volume as :func:`lock_volume` does and return it, and its rows as of
    :func:`list_rows`.
    """
    volume = lock_volume(connection, volume_id, statement)
    return volume, list_rows(connection, volume_id)


def new_row(volume_id: str, kind: AttachmentKind, values: Mapping[str, Any]) -> AttachmentRow:
    """Return a row that INSERT takes; the columns that it lacks are NULL.

    A row with a given id may be the second one with it.  Its generation starts at random, so that
    late reports about the first one do not match.
    """
    row: Any = {
        **values,
        "id": values.get("id") or models.new_id(),
        "volume_id": volume_id,
        "kind": kind.value,
        "generation": secrets.randbelow(_RANDOM_GENERATIONS) if values.get("id") else 0,
        "created_at": models.now(),
    }
    new: AttachmentRow = row
    return new


def insert(connection: sa.Connection, row: AttachmentRow) -> None:
    """Store a new row and record an event."""
    keys: Any = host_identity.columns(row.get("host"), row.get("connector"))
    row |= keys
    statements.INSERT.execute(connection, encryption.bind(row, row["id"]))
    events.record(connection, row, row["state"])


def next_generation(row: AttachmentRow) -> dict[str, Any]:
    """Return the columns that keep earlier workers on a row from writing to it."""
    return {"generation": row["generation"] + 1}


def fenced_generation(current: AttachmentRow) -> dict[str, Any]:
    """Return the columns of an attachment that is fenced: see :func:`next_generation`."""
    return {**next_generation(current), "fenced": True}


def check_unchanged(current: AttachmentRow, row: AttachmentVersion, event: Event) -> None:
    """Check that an attachment is as it was read; raises InvalidTransition.

    :param row: as it was read
    """
    if (current["state"], current["generation"]) != (row["state"], row["generation"]):
        raise exception.InvalidTransition(
            kind="Attachment", id=row["id"], source=current["state"], event=event.value
        )


def check_allowed_states(row: AttachmentRow, allowed_states: Collection[str] | None) -> None:
    """Check that an attachment is in one of the states in which it may be deleted.

    :param allowed_states: None: any
    :raises InvalidTransition: it is in none of them; it has changed since the caller's decision
    """
    if allowed_states is not None and row["state"] not in allowed_states:
        now = AttachmentState(row["state"]).wire
        raise exception.InvalidTransition(
            f"Attachment {row['id']} has become {now} since it was decided that it may be "
            "deleted. Check it, and repeat the call if it is still to be deleted."
        )


def volume_changes(
    volume: LockedVolumeRow, current: AttachmentRow, source: AttachmentState, event: Event
) -> dict[str, Any]:
    """Return the other changes of the volume at a transition of an attachment."""
    changed: dict[str, Any] = {}
    is_visible = current["kind"] in states.VISIBLE_KINDS
    if event is Event.COMPLETE:
        changed["pending_detaches"] = 0
    elif event in _DETACHING and source in _COUNTED and is_visible:
        # os-begin_detaching was called for one of them; one is detached now.
        changed["pending_detaches"] = max(volume["pending_detaches"] - 1, 0)
    elif event is Event.REVOKED and is_visible:
        changed["state"] = states.state_after_detach(VolumeState(volume["state"])).value
        if ATTACHED_MODE in volume["admin_metadata"]:
            changed["admin_metadata"] = without_attached_mode(volume["admin_metadata"])
    elif event is Event.CANCEL:
        changed["state"] = states.state_after_detach(VolumeState(volume["state"])).value
    return changed


def without_attached_mode(admin_metadata: Mapping[str, str]) -> dict[str, str]:
    """Return administrative metadata as it is while the volume is not attached."""
    return {key: value for key, value in admin_metadata.items() if key != ATTACHED_MODE}


def compare_and_swap(
    connection: sa.Connection,
    row: AttachmentRow,
    event: Event,
    values: dict[str, Any],
    generation: int | None,
    statement: CompiledStatement | None = None,
) -> AttachmentState | None:
    """Take a row through a transition by compare-and-swap, update ``row``, and record an event.

    :param row: at least the columns that :func:`events.record` needs; where its state is not
        known, an event is recorded in any case
    :param generation: only if the row still has this one
    :param statement: executed instead of SWAP
    :returns: the new state; None: the row has been removed
    :raises InvalidTransition: the row is in no source state, or has another generation
    """
    source = row["state"]
    target = swap(connection, row, event, values, generation, statement)
    if source != target:
        record(connection, row, event, values)
    return target


def record(
    connection: sa.Connection, row: AttachmentRow, event: Event, values: dict[str, Any]
) -> None:
    """Record the event of a transition, which :func:`swap` has made."""
    target = states.ATTACHMENT_TRANSITIONS[event].target
    events.record(connection, row, events.event_type(event, target), values.get("error"))


def swap(
    connection: sa.Connection,
    row: AttachmentRow,
    event: Event,
    values: dict[str, Any],
    generation: int | None,
    statement: CompiledStatement | None = None,
) -> AttachmentState | None:
    """Do as :func:`compare_and_swap`, but record no event."""
    target = states.ATTACHMENT_TRANSITIONS[event].target
    params: dict[str, Any] = {"match_id": row["id"]}
    statement = statements.SWAP[event] if statement is None else statement
    if generation is not None:
        statement = statements.SWAP_IN_GENERATION[event]
        params["match_generation"] = generation
    if target is not None:
        if "error" in values:
            values["error"] = models.truncate_error(values["error"])
        if "connector" in values:
            values |= host_identity.columns(values.get("host"), values["connector"])
        values |= {"state": target.value, "updated_at": models.now()}
        params |= encryption.bind(values, row["id"])
    if statement.execute(connection, params) != 1:
        raise exception.InvalidTransition(
            kind="Attachment", id=row["id"], source=row["state"], event=event.value
        )
    stored: Any = values
    row.update(stored)
    return target


def update_volume(
    connection: sa.Connection,
    volume: LockedVolumeRow,
    rows: Sequence[AttachmentRow],
    changed: Mapping[str, Any] | None = None,
    *,
    joined: bool = False,
) -> None:
    """Store the changes of a volume, and what is derived from its rows; update ``volume``.

    :param rows: all rows that there are by now
    :param joined: one of them is new: the volume's row changes even if no value does, so that a
        caller that has read it before notices
    """
    updated: dict[str, Any] = {**volume, **(changed or {})}
    attachment_states = [AttachmentState(row["state"]) for row in rows]
    pending_detaches = states.remaining_detaches(updated["pending_detaches"], attachment_states)
    derived = states.derive(VolumeState(updated["state"]), attachment_states, pending_detaches)
    values: Any = {
        **(changed or {}),
        "pending_detaches": pending_detaches,
        **derived._asdict(),
    }
    if values.items() <= volume.items() and not joined:
        return
    values["updated_at"] = models.now()
    statements.UPDATE_VOLUME.execute(connection, {"match_id": volume["id"], **values})
    volume.update(values)


def list_holding(connection: sa.Connection, volume_id: str) -> list[AttachmentRow]:
    """Return the rows that hold a volume, without connector and secrets, under the volume's
    lock.
    """
    found = connection.execute(
        sa.select(
            _ATTACHMENTS.c.id,
            _ATTACHMENTS.c.state,
            _ATTACHMENTS.c.kind,
            _ATTACHMENTS.c.host,
            _ATTACHMENTS.c.instance_uuid,
        )
        .where(_ATTACHMENTS.c.volume_id == volume_id, _ATTACHMENTS.c.state.not_in(states.INACTIVE))
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )
    rows: list[Any] = [dict(row._mapping) for row in found]
    return rows


def delete_of_volume(connection: sa.Connection, volume_id: str) -> None:
    """Delete the remaining rows of a volume that goes: attachments that never connected."""
    rows = connection.execute(
        sa.select(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id == volume_id)
    ).all()
    for row in rows:
        source: Any = dict(row._mapping)
        events.record(connection, source, events.DELETED)
    connection.execute(sa.delete(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id == volume_id))

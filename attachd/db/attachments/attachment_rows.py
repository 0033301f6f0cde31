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

# Transitions of which a manager that holds the lease records only the outcome.  A request without
# a lease, which a manager executes later, is recorded at once.
_STARTED_BY_MANAGER = frozenset({Event.CONNECT, Event.DISCONNECT})


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


def find_hold(
    volume: LockedVolumeRow, rows: Sequence[AttachmentRow], user_id: str | None
) -> AttachmentRow | None:
    """Return the hold that a user releases or makes use of, the oldest one; None: there is none.

    None of the older calls names a hold. An ordinary volume has one at most; of several, those of
    other users are not touched.
    """
    holds = of_kind(rows, AttachmentKind.HOLD)
    return next(iter(of_user(holds, user_id) if volume["multiattach"] else holds), None)


def is_on_host(made: AttachmentRow, host: str | None) -> bool:
    """Return whether an attachment is on a host; a machine without a server may be named as
    one.
    """
    if host is None:
        return False
    names = (name for name in (made["host"], made["instance_uuid"]) if name)
    return any(host_identity.is_same_name(name, host) for name in names)


def without_connection(rows: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return the legacy attachments that are not being removed and have no connection yet."""
    connections = holding(of_kind(rows, AttachmentKind.CONNECTION))
    served = {row["parent_id"] for row in connections}
    made = not_detaching(of_kind(rows, AttachmentKind.LEGACY))
    return [row for row in made if row["id"] not in served]


def connections_to_close(
    current: AttachmentRow, others: Sequence[AttachmentRow]
) -> list[AttachmentRow]:
    """Return the connections that end with an attachment.

    With the last legacy attachment of a user end the connections without a parent that this user
    opened, unless a hold of the user remains, to which they may belong, or the attachment is
    fenced: that concerns one host.

    :param others: the volume's other rows
    """
    connections = of_kind(others, AttachmentKind.CONNECTION)
    reach = {current["id"]}
    theirs = of_user(others, current["user_id"])
    claims = of_kind(theirs, AttachmentKind.HOLD)
    claims += holding(of_kind(theirs, AttachmentKind.LEGACY))
    if current["kind"] == AttachmentKind.LEGACY and not claims and not current["fenced"]:
        own = of_user(connections, current["user_id"])
        reach |= {row["id"] for row in own if row["parent_id"] is None}
    return [row for row in connections if reach & {row["id"], row["parent_id"]}]


def of_others(current: AttachmentRow, rows: Sequence[AttachmentRow]) -> list[AttachmentRow]:
    """Return the rows that are not at the other end of a row's move; see moves.py."""
    ends = {current.get("move_from"), current.get("id")} - {None}
    return [row for row in rows if not ends & {row["id"], row.get("move_from")}]


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


def fenced_generation(current: AttachmentRow, others: Sequence[AttachmentRow]) -> dict[str, Any]:
    """Return the columns of an attachment that is fenced: see :func:`next_generation`.

    :param others: the volume's other rows
    :raises Conflict: it is a legacy attachment with connections, which are fenced instead of it
    """
    served = [row["host"] for row in holding(others) if row["parent_id"] == current["id"]]
    if served:
        raise exception.Conflict(
            reason=f"Attachment {current['id']} was made by os-attach, and host {served[0]} is "
            "connected for it: fence that host."
        )
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


def transition(
    connection: sa.Connection,
    volume: LockedVolumeRow,
    rows: Sequence[AttachmentRow],
    current: AttachmentRow,
    event: Event,
    values: Mapping[str, Any],
    guard: Guard | None = None,
    generation: int | None = None,
    volume_lease: Mapping[str, Any] | None = None,
) -> Transitioned:
    """Take one of the rows of a locked volume through a transition, and the volume with it.

    :param volume_lease: other changes of the volume's row, see volume_leases.acquire(); None:
        there is no lease
    :raises: as attachment_store.transition()
    """
    others = [row for row in rows if row is not current]
    if volume["state"] in states.BEING_REMOVED and current["state"] in states.INACTIVE:
        # It did not prevent the removal of its volume, and goes with it: if it counted again, the
        # volume's data would be removed and its row could not.
        raise exception.Conflict(reason=f"Volume {volume['id']} is {volume['state']}.")
    source = AttachmentState(current["state"])
    stored = dict(values)
    if guard is not None:
        stored.update(guard(LockedVolume(connection, volume, current, others)))
    target = _swap(connection, current, event, stored, generation)
    # A manager records the outcome of its work, not the start.
    if source != target and (volume_lease is None or event not in _STARTED_BY_MANAGER):
        _record(connection, current, event, stored)
    changed = volume_changes(volume, current, source, event)
    if event is Event.REVOKED and current["kind"] == AttachmentKind.CONNECTION:
        if current["fenced"] and (served := _only_served(current, others)):
            others, changed = _remove_served(connection, volume, served, others)
        others = [*_close_connection(connection, volume, current, others)]
    remaining: Sequence[AttachmentRow] = others if target is None else [*others, current]
    update_volume(connection, volume, remaining, {**changed, **(volume_lease or {})})
    return Transitioned(volume, current, others, source)


def volume_changes(
    volume: LockedVolumeRow, current: AttachmentRow, source: AttachmentState, event: Event
) -> dict[str, Any]:
    """Return the other changes of the volume at a transition of an attachment."""
    changed: dict[str, Any] = {}
    if event is Event.COMPLETE:
        changed["pending_detaches"] = 0
    elif event in _DETACHING and source is AttachmentState.ATTACHED:
        # os-begin_detaching was called for one of them; one is detached now.
        changed["pending_detaches"] = max(volume["pending_detaches"] - 1, 0)
    elif event is Event.REVOKED and current["kind"] in states.VISIBLE_KINDS:
        changed["state"] = states.state_after_detach(VolumeState(volume["state"])).value
        if ATTACHED_MODE in volume["admin_metadata"]:
            changed["admin_metadata"] = without_attached_mode(volume["admin_metadata"])
    elif event is Event.CANCEL:
        changed["state"] = states.state_after_detach(VolumeState(volume["state"])).value
    return changed


def _close_connection(
    connection: sa.Connection,
    volume: LockedVolumeRow,
    closed: AttachmentRow,
    others: Sequence[AttachmentRow],
) -> Sequence[AttachmentRow]:
    """Update the rows that depended on a closed connection; return the remaining rows.

    The hold that it was opened for is released. Its parent, if it asked to read only, does so from
    now on, unless another host of the parent may write.
    """
    if closed["parent_id"] is None:
        return release_hold(connection, others, find_hold(volume, others, closed["user_id"]))
    served = [row for row in others if row["id"] == closed["parent_id"]]
    writers = [
        row for row in others if row["parent_id"] == closed["parent_id"] and row["mode"] == "rw"
    ]
    for row in of_kind(served, AttachmentKind.LEGACY):
        if row["asked_mode"] == "ro" and not writers:
            connection.execute(statements.UPDATE, {"match_id": row["id"], "mode": "ro"})
    return others


def find_served(closed: AttachmentRow, others: Sequence[AttachmentRow]) -> AttachmentRow | None:
    """Return the legacy attachment that a connection serves; None: there is none."""
    legacy = of_kind(others, AttachmentKind.LEGACY)
    return next((row for row in legacy if row["id"] == closed["parent_id"]), None)


def _only_served(closed: AttachmentRow, others: Sequence[AttachmentRow]) -> AttachmentRow | None:
    """Return the legacy attachment whose last connection this is, unless it is detached anyway."""
    served = find_served(closed, others)
    if served is None or not not_detaching([served]):
        return None
    connections = [row for row in holding(others) if row["parent_id"] == served["id"]]
    return None if connections else served


def _remove_served(
    connection: sa.Connection,
    volume: LockedVolumeRow,
    served: AttachmentRow,
    others: Sequence[AttachmentRow],
) -> tuple[list[AttachmentRow], dict[str, Any]]:
    """Remove a legacy attachment with its last connection, which was fenced.

    :returns: the remaining rows, and the other changes of the volume
    """
    changed: dict[str, Any] = {}
    for event in (Event.DISCONNECT, Event.REVOKED):
        source = AttachmentState(served["state"])
        _swap(connection, served, event, {}, None)
        changed |= volume_changes(volume, served, source, event)
    _record(connection, served, Event.REVOKED, {})
    return [row for row in others if row is not served], changed


def release_hold(
    connection: sa.Connection, held: Sequence[AttachmentRow], hold: AttachmentRow | None
) -> list[AttachmentRow]:
    """Release a hold, if there is one; return the remaining rows."""
    if hold is not None:
        compare_and_swap(connection, hold, Event.RELEASE, {}, None)
    return [row for row in held if row is not hold]


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
    target = _swap(connection, row, event, values, generation, statement)
    if source != target:
        _record(connection, row, event, values)
    return target


def _record(
    connection: sa.Connection, row: AttachmentRow, event: Event, values: dict[str, Any]
) -> None:
    target = states.ATTACHMENT_TRANSITIONS[event].target
    events.record(connection, row, events.event_type(event, target), values.get("error"))


def _swap(
    connection: sa.Connection,
    row: AttachmentRow,
    event: Event,
    values: dict[str, Any],
    generation: int | None,
    statement: CompiledStatement | None = None,
) -> AttachmentState | None:
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

# SPDX-License-Identifier: Apache-2.0
"""Rows of the older calls for attaching: holds, connections, and legacy attachments.

Each of those calls does one thing, and none of them names what another one has done: so each has a
row of its own, and this module finds out which rows belong together. Every writing function is one
transaction under the volume's lock; used by the handlers of api/legacy and the manager.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd import exception
from attachd.db import models, quotas
from attachd.db.attachments import (
    attachment_rows,
    attachment_store,
    connect_rules,
    duplicates,
    legacy_rows,
    statements,
)
from attachd.db.attachments.attachment_queries import PUBLIC_COLUMNS
from attachd.db.attachments.connect_rules import READONLY, Action
from attachd.db.cluster import volume_leases
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, LockedVolumeRow
from attachd.states import AttachmentKind, AttachmentState, Event

_ATTACHMENTS = models.attachments

_IN_USE: Final = frozenset({"in-use", "detaching"})
"""Status of a volume that a host has, also if some are about to be detached."""

_NO_HOST_ATTACHED: Final = frozenset({"available", "reserved"})
"""Status of a volume that no host uses, or begins to use."""


class AttachRequest(TypedDict):
    """Columns of a legacy attachment, as os-attach states them.

    :ivar host: a host's name, where no server is named
    :ivar mode: "rw", "ro", or None: as its host got access, "rw" if that is not known
    """

    project_id: str
    user_id: str | None
    instance_uuid: str | None
    host: str | None
    mountpoint: str
    mode: str | None


class Creator(NamedTuple):
    """Columns that say for whom a connection is made.

    :ivar project_id: of the volume
    :ivar by_service: whether a service with a service token makes it; None: a user does
    """

    project_id: str
    user_id: str | None
    by_service: bool | None = None


@retried
def list_rows(volume_id: str) -> list[AttachmentRow]:
    """Return the rows of a volume, of all kinds, without secrets, oldest first."""
    statement = (
        sa.select(*PUBLIC_COLUMNS)
        .where(_ATTACHMENTS.c.volume_id == volume_id)
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )
    return session.fetch_all(statement, AttachmentRow)


@retried
def reserve(
    volume_id: str, project_id: str, user_id: str | None, denied_rule: str | None = None
) -> None:
    """Reserve a volume for a call that will name the server or host later.

    :param denied_rule: the rule that denies the caller to share the volume, if one does
    :raises VolumeNotAvailable: the volume has another holder, or is in no state for it
    :raises AttachmentLimitExceeded: a limit of attachments is reached
    :raises QuotaExceeded: the project has as many attachments as it may have
    :raises Forbidden: the volume has another holder, and ``denied_rule`` names a rule
    """
    identity = {"project_id": project_id, "user_id": user_id}
    new = attachment_rows.new_row(volume_id, AttachmentKind.HOLD, identity)
    new["state"] = AttachmentState.HELD.value
    with session.writer() as connection:
        limit = quotas.lock_attachments(connection, project_id)
        volume, held = attachment_rows.lock_with_rows(
            connection, volume_id, statements.LOCK_VOLUME_TO_RESERVE
        )
        attachment_rows.check_project(volume, project_id)
        request = connect_rules.Request(Action.RESERVE, denied_rule=denied_rule)
        connect_rules.decide(attachment_rows.LockedVolume(connection, volume, new, held), request)
        quotas.check_attachments(connection, project_id, limit)
        attachment_rows.insert(connection, new)
        attachment_rows.update_volume(connection, volume, [*held, new], joined=True)


@retried
def release(volume_id: str, hold_ids: Collection[str]) -> None:
    """Release those holds of a volume that still exist.

    :param hold_ids: as the caller has read them: a later holder keeps the volume
    """
    with session.writer() as connection:
        volume, held = attachment_rows.lock_with_rows(connection, volume_id)
        for row in attachment_rows.of_kind(held, AttachmentKind.HOLD):
            if row["id"] in hold_ids:
                attachment_rows.compare_and_swap(connection, row, Event.RELEASE, {}, None)
                held.remove(row)
        attachment_rows.update_volume(connection, volume, held)


@retried
def begin_detaching(volume_id: str, *, by_service: bool = False) -> None:
    """Count one more attachment of a volume that is about to be detached.

    Compute calls it for what it believes to be attached.  Where that was deleted without it (by
    recovery, a fence, or an administrator), nothing is counted, and Compute goes on to delete the
    attachment and its own row.

    :param by_service: whether a service calls it
    :raises InvalidVolume: it has none that is not counted already
    """
    with session.writer() as connection:
        volume, held = attachment_rows.lock_with_rows(connection, volume_id)
        if not _has_one_to_detach(volume, held):
            if by_service and _has_nothing_to_count(volume, held):
                return
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} must be in-use to begin detaching, but its status is "
                f"{volume['status']}."
            )
        attachment_rows.update_volume(
            connection, volume, held, {"pending_detaches": volume["pending_detaches"] + 1}
        )


def _has_one_to_detach(volume: LockedVolumeRow, rows: Sequence[AttachmentRow]) -> bool:
    """Return whether a host is attached that is not counted yet, of a volume that is in order."""
    attached = sum(row["state"] == AttachmentState.ATTACHED for row in rows)
    return volume["status"] in _IN_USE and volume["pending_detaches"] < attached


def _has_nothing_to_count(volume: LockedVolumeRow, rows: Sequence[AttachmentRow]) -> bool:
    """Return whether no host is attached, or one that was to be detached could not be."""
    has_failed = any(
        row["state"] == AttachmentState.DISCONNECT_FAILED for row in attachment_rows.visible(rows)
    )
    return has_failed or volume["status"] in _NO_HOST_ATTACHED


@retried
def roll_detaching(volume_id: str) -> None:
    """Count one attachment less that is about to be detached."""
    with session.writer() as connection:
        volume, held = attachment_rows.lock_with_rows(connection, volume_id)
        attachment_rows.update_volume(
            connection, volume, held, {"pending_detaches": max(volume["pending_detaches"] - 1, 0)}
        )


@retried
def attach(
    volume_id: str, request: AttachRequest, denied_rule: str | None = None
) -> AttachmentRow:
    """Store that a volume is in use by the holder of a hold, or by a caller without one.

    A repeated call changes nothing. A reservation of the same server becomes attached.

    :param denied_rule: as of :func:`reserve`, which has checked it where the volume has a hold
    :returns: the attachment's row
    :raises InvalidVolume: the volume has another holder, or is in no state for it
    :raises InvalidVolumeAttachMode: the volume may only be read, and "rw" was requested
    :raises AttachmentLimitExceeded: a limit of attachments is reached
    :raises Forbidden: the volume has another holder, and ``denied_rule`` names a rule
    """
    with session.writer() as connection:
        limit = quotas.lock_attachments(connection, request["project_id"])
        volume, held = attachment_rows.lock_with_rows(
            connection, volume_id, statements.LOCK_VOLUME_TO_RESERVE
        )
        attachment_rows.check_project(volume, request["project_id"])
        holders = attachment_rows.holding(attachment_rows.visible(held))
        server, host = request["instance_uuid"], request["host"]
        current = next(
            (row for row in holders if duplicates.is_same_holder(row, server, host)), None
        )
        known = current or _new_row(volume_id, request)
        opened = _connections_for(known, volume, held, request)
        hold = legacy_rows.find_hold(volume, held, request["user_id"])
        if current is not None and current["state"] == AttachmentState.ATTACHED:
            hold = None  # The first call has released it.
        locked = attachment_rows.LockedVolume(
            connection,
            volume,
            {**known, "user_id": request["user_id"]},
            _rows_after_attach(held, known, opened, hold),
        )
        action = Action.RECORD if current is None else Action.RESUME
        modes = _decide_modes(locked, opened, action, request, None if hold else denied_rule)
        changed: dict[str, Any] = {"pending_detaches": 0}
        if current is None:
            # A hold is released, and a connection without an attachment gets it: neither counts
            # any more.
            if hold is None and all(row["parent_id"] for row in opened):
                quotas.check_attachments(connection, request["project_id"], limit)
            current = _insert_attachment(connection, known, modes)
            held.append(current)
            changed["admin_metadata"] = {
                READONLY: "False",
                **volume["admin_metadata"],
                attachment_rows.ATTACHED_MODE: modes["mode"],
            }
        else:
            # The mode of a reservation is that of its host.
            reserved = current["state"] == AttachmentState.RESERVED
            values = {"mode": modes["mode"]} if reserved else {}
            attachment_rows.compare_and_swap(connection, current, Event.COMPLETE, values, None)
        _set_parent(connection, opened, current)
        remaining = legacy_rows.release_hold(connection, held, hold)
        attachment_rows.update_volume(connection, volume, remaining, changed)
    return current


@retried
def begin_connection(
    volume_id: str,
    creator: Creator,
    connector: Mapping[str, Any],
    guard: attachment_rows.Guard,
    volume_lease: volume_leases.VolumeLeaseToken | None = None,
) -> attachment_rows.Transitioned:
    """Move a connection along CONNECT: that of the same host, or a new one.

    :param guard: see attachment_store.transition(); what it raises leaves no new row
    :param volume_lease: as there
    :raises QuotaExceeded: the project has as many attachments as it may have
    """
    identity: Any = creator._asdict()
    with session.writer() as connection:
        limit = quotas.lock_attachments(connection, creator.project_id)
        volume, held = attachment_rows.lock_with_rows(
            connection, volume_id, statements.LOCK_VOLUME_TO_CONNECT
        )
        attachment_rows.check_project(volume, creator.project_id)
        stored = volume_leases.acquire(connection, volume, volume_lease) if volume_lease else {}
        current = duplicates.find_connection(_reusable(volume, held, creator.user_id), connector)
        if current is None:
            if not _is_expected(volume, held, creator.user_id):
                quotas.check_attachments(connection, creator.project_id, limit)
            new = attachment_rows.new_row(volume_id, AttachmentKind.CONNECTION, identity)
            new["state"] = AttachmentState.RESERVED.value
            attachment_rows.insert(connection, new)
            current = _with_all_columns(new)
            held.append(current)
        values = {}
        if not attachment_rows.holding([current]):
            # A connect that failed held nothing: the volume is connected for this user now.
            values = identity
            current.update(identity)
        transitioned = attachment_store.transition_locked(
            connection,
            volume,
            held,
            current,
            Event.CONNECT,
            values,
            guard,
            None,
            stored if volume_lease else None,
        )
    if volume_lease:
        volume_leases.confirm(volume_lease, stored)
    return transitioned


def _is_expected(
    volume: LockedVolumeRow, held: Sequence[AttachmentRow], user_id: str | None
) -> bool:
    """Return whether a hold or an attachment counts already for a new connection."""
    hold = legacy_rows.find_hold(volume, held, user_id)
    return hold is not None or bool(legacy_rows.without_connection(held))


def _new_row(volume_id: str, request: AttachRequest) -> AttachmentRow:
    row = attachment_rows.new_row(volume_id, AttachmentKind.LEGACY, request)
    row["state"] = AttachmentState.ATTACHED.value
    row["attached_at"] = models.now()
    return row


def _insert_attachment(
    connection: sa.Connection, new: AttachmentRow, modes: dict[str, Any]
) -> AttachmentRow:
    row: Any = {**new, **modes}
    attachment_rows.insert(connection, row)
    return _with_all_columns(row)


def _with_all_columns(new: AttachmentRow) -> AttachmentRow:
    """Return a new row as it is read, with the columns that are NULL."""
    row: Any = dict.fromkeys(column.name for column in _ATTACHMENTS.c)
    stored: AttachmentRow = row | new
    return stored


def _connections_for(
    current: AttachmentRow,
    volume: LockedVolumeRow,
    held: Sequence[AttachmentRow],
    request: AttachRequest,
) -> list[AttachmentRow]:
    """Return the connections that an attachment uses: they are closed with it."""
    connections = attachment_rows.of_kind(held, AttachmentKind.CONNECTION)
    free = [row for row in connections if row["parent_id"] is None]
    if volume["multiattach"]:
        at_host = [row for row in free if legacy_rows.is_on_host(current, row["host"])]
        # Several may be of several servers: their users are unknown then.
        own = attachment_rows.of_user(free, request["user_id"])
        free = at_host or (own if len(own) == 1 else [])
    return free + [row for row in connections if row["parent_id"] == current["id"]]


def _set_parent(
    connection: sa.Connection, opened: Sequence[AttachmentRow], current: AttachmentRow
) -> None:
    bound: Any = {"parent_id": current["id"], "instance_uuid": current["instance_uuid"]}
    for row in opened:
        if row["parent_id"] is None:
            connection.execute(statements.UPDATE, {"match_id": row["id"], **bound})
            row.update(bound)


def _rows_after_attach(
    held: Sequence[AttachmentRow],
    known: AttachmentRow,
    opened: Sequence[AttachmentRow],
    hold: AttachmentRow | None,
) -> list[AttachmentRow]:
    """Return a volume's other rows as they are going to be after an attachment is stored.

    The hold is released, and the connections that were opened for the attachment serve it.
    """
    served = {row["id"] for row in opened}
    return [
        {**row, "parent_id": known["id"]} if row["id"] in served else row
        for row in held
        if row is not hold and row is not known
    ]


def _decide_modes(
    locked: attachment_rows.LockedVolume,
    opened: Sequence[AttachmentRow],
    action: Action,
    request: AttachRequest,
    denied_rule: str | None,
) -> dict[str, Any]:
    """Return the modes of an attachment; "ro" only for a host that cannot write.

    :returns: ``mode``, what its host may do, and ``asked_mode``, what is asked of connections
        that are opened for it later
    :raises: as connect_rules.decide()
    """
    host_modes = {row["mode"] for row in attachment_rows.holding(opened)}
    only_reads = host_modes == {"ro"}
    requested = request["mode"]
    if requested is None:
        read_only = locked.volume["admin_metadata"].get(READONLY) == "True"
        requested = "ro" if only_reads and not read_only else "rw"
    connect_rules.decide(
        locked, connect_rules.Request(action, mode=requested, denied_rule=denied_rule)
    )
    if requested == "rw" and only_reads:
        hosts = ", ".join(sorted({str(row["host"]) for row in opened}))
        raise exception.InvalidVolumeAttachMode(
            volume_id=locked.volume["id"], reason=f"its host {hosts} has read-only access"
        )
    return {"mode": "rw" if "rw" in host_modes else requested, "asked_mode": requested}


def _reusable(
    volume: LockedVolumeRow, held: Sequence[AttachmentRow], user_id: str | None
) -> list[AttachmentRow]:
    """Return the connections that a user may get once more.

    A user who has reserved one of several attachments gets a connection of its own, not one that
    is in use: it is closed by itself, even if it is of the same host.
    """
    one_more = volume["multiattach"] and legacy_rows.find_hold(volume, held, user_id) is not None
    connections = attachment_rows.of_kind(held, AttachmentKind.CONNECTION)
    return [row for row in connections if row["parent_id"] is None or not one_more]

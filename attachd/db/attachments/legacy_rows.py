# SPDX-License-Identifier: Apache-2.0
"""Rows of the older calls: which of them belong together, and what follows the end of one.

Attachments of the newer calls depend on no other row. See legacy.py for the calls.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from attachd import exception, host_identity
from attachd.db.attachments import attachment_rows, statements
from attachd.db.row_types import AttachmentRow, LockedVolumeRow
from attachd.states import AttachmentKind, AttachmentState, Event


def find_hold(
    volume: LockedVolumeRow, rows: Sequence[AttachmentRow], user_id: str | None
) -> AttachmentRow | None:
    """Return the hold that a user releases or makes use of, the oldest one; None: there is none.

    None of the older calls names a hold. An ordinary volume has one at most; of several, those of
    other users are not touched.
    """
    holds = attachment_rows.of_kind(rows, AttachmentKind.HOLD)
    if volume["multiattach"]:
        holds = attachment_rows.of_user(holds, user_id)
    return next(iter(holds), None)


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
    connections = attachment_rows.holding(attachment_rows.of_kind(rows, AttachmentKind.CONNECTION))
    served = {row["parent_id"] for row in connections}
    made = attachment_rows.not_detaching(attachment_rows.of_kind(rows, AttachmentKind.LEGACY))
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
    connections = attachment_rows.of_kind(others, AttachmentKind.CONNECTION)
    reach = {current["id"]}
    theirs = attachment_rows.of_user(others, current["user_id"])
    claims = attachment_rows.of_kind(theirs, AttachmentKind.HOLD)
    claims += attachment_rows.holding(attachment_rows.of_kind(theirs, AttachmentKind.LEGACY))
    if current["kind"] == AttachmentKind.LEGACY and not claims and not current["fenced"]:
        own = attachment_rows.of_user(connections, current["user_id"])
        reach |= {row["id"] for row in own if row["parent_id"] is None}
    return [row for row in connections if reach & {row["id"], row["parent_id"]}]


def check_may_be_fenced(current: AttachmentRow, others: Sequence[AttachmentRow]) -> None:
    """Check that a fence of an attachment ends the access of its host.

    :param others: the volume's other rows
    :raises Conflict: it is a legacy attachment with connections, which are fenced instead of it
    """
    served = [
        row["host"] for row in attachment_rows.holding(others) if row["parent_id"] == current["id"]
    ]
    if served:
        raise exception.Conflict(
            reason=f"Attachment {current['id']} was made by os-attach, and host {served[0]} is "
            "connected for it: fence that host."
        )


def find_served(closed: AttachmentRow, others: Sequence[AttachmentRow]) -> AttachmentRow | None:
    """Return the legacy attachment that a connection serves; None: there is none."""
    legacy = attachment_rows.of_kind(others, AttachmentKind.LEGACY)
    return next((row for row in legacy if row["id"] == closed["parent_id"]), None)


def end_connection(
    connection: sa.Connection,
    volume: LockedVolumeRow,
    closed: AttachmentRow,
    others: Sequence[AttachmentRow],
) -> tuple[list[AttachmentRow], dict[str, Any]]:
    """Change the rows that depended on a connection, which has been removed.

    :returns: the remaining rows, and the other changes of the volume
    """
    changed: dict[str, Any] = {}
    if closed["fenced"] and (served := _only_served(closed, others)):
        others, changed = _remove_served(connection, volume, served, others)
    return [*_close_connection(connection, volume, closed, others)], changed


def _only_served(closed: AttachmentRow, others: Sequence[AttachmentRow]) -> AttachmentRow | None:
    """Return the legacy attachment whose last connection this is, unless it is detached anyway."""
    served = find_served(closed, others)
    if served is None or not attachment_rows.not_detaching([served]):
        return None
    connections = [
        row for row in attachment_rows.holding(others) if row["parent_id"] == served["id"]
    ]
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
        attachment_rows.swap(connection, served, event, {}, None)
        changed |= attachment_rows.volume_changes(volume, served, source, event)
    attachment_rows.record(connection, served, Event.REVOKED, {})
    return [row for row in others if row is not served], changed


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
    for row in attachment_rows.of_kind(served, AttachmentKind.LEGACY):
        if row["asked_mode"] == "ro" and not writers:
            connection.execute(statements.UPDATE, {"match_id": row["id"], "mode": "ro"})
    return others


def release_hold(
    connection: sa.Connection, held: Sequence[AttachmentRow], hold: AttachmentRow | None
) -> list[AttachmentRow]:
    """Release a hold, if there is one; return the remaining rows."""
    if hold is not None:
        attachment_rows.compare_and_swap(connection, hold, Event.RELEASE, {}, None)
    return [row for row in held if row is not hold]

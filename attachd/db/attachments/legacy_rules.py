# SPDX-License-Identifier: Apache-2.0
"""Rules for the older calls, none of which names the consumer; part of connect_rules.py."""

from collections.abc import Mapping, Sequence
from typing import Any

from attachd import states
from attachd.db.attachments import attachment_rows, legacy_rows
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.db.row_types import AttachmentRow, LockedVolumeRow
from attachd.states import AttachmentKind


def others_of_connection(
    volume: LockedVolumeRow,
    current: AttachmentRow,
    rows: Sequence[AttachmentRow],
    host: str | None,
) -> list[AttachmentRow]:
    """Return the rows that hold the volume for another consumer than a connection.

    The connection of an ordinary volume is part of the attach whose hold or legacy attachment is
    there.  That of a multiattach volume is, where the user has a hold without a connection, or a
    legacy attachment without a connection is this user's or on this host.
    """
    if not volume["multiattach"]:
        attachments = attachment_rows.visible(rows)
        return [
            row
            for row in attachments
            if row["kind"] == AttachmentKind.ATTACHMENT or row["state"] in states.DETACHING
        ]
    user_id = current["user_id"]
    connections = attachment_rows.of_kind(rows, AttachmentKind.CONNECTION)
    unused = [
        row for row in attachment_rows.of_user(connections, user_id) if row["parent_id"] is None
    ]
    holds = attachment_rows.of_user(attachment_rows.of_kind(rows, AttachmentKind.HOLD), user_id)
    waiting = [
        row
        for row in legacy_rows.without_connection(rows)
        if row["user_id"] == user_id or legacy_rows.is_on_host(row, host)
    ]
    if len(holds) > len(unused) or waiting:
        return []
    return [*attachment_rows.visible(rows), *connections]


def others_of_legacy_attachment(
    volume: LockedVolumeRow, current: AttachmentRow, rows: Sequence[AttachmentRow]
) -> list[AttachmentRow]:
    """Return the rows that hold the volume for another consumer than a new legacy attachment.

    Holds and connections of an ordinary volume are for it, those of a multiattach volume only if
    they are of the same user.
    """
    return [
        row
        for row in rows
        if row["kind"] in states.VISIBLE_KINDS
        or (volume["multiattach"] and row["user_id"] != current["user_id"])
    ]


def serves_reader(locked: LockedVolume) -> bool:
    """Return whether a connection serves an attachment that only reads."""
    parent_id = locked.attachment["parent_id"]
    served = [row for row in locked.others if row["id"] == parent_id]
    return "ro" in [row["asked_mode"] or row["mode"] for row in served]


def may_serve(row: AttachmentRow, current: AttachmentRow) -> bool:
    """Return whether a row is a connection without an attachment yet, of the user of os-attach."""
    is_unused = row["kind"] == AttachmentKind.CONNECTION and row["parent_id"] is None
    return is_unused and bool(row["user_id"] == current["user_id"])


def find_parent(
    volume: LockedVolumeRow, rows: Sequence[AttachmentRow], host: str | None, user_id: str | None
) -> Mapping[str, Any]:
    """Return the columns that assign a new connection to the legacy attachment it serves.

    :param rows: the volume's other rows
    :param host: that is connected
    :param user_id: of the caller
    :returns: empty if it serves none, or several may be meant
    """
    legacy = attachment_rows.of_kind(rows, AttachmentKind.LEGACY)
    candidates = attachment_rows.not_detaching(legacy)
    if volume["multiattach"]:
        waiting = legacy_rows.without_connection(rows)
        candidates = [row for row in waiting if legacy_rows.is_on_host(row, host)]
        candidates = candidates or _awaiting_connection(rows, user_id)
    if not candidates:
        return {}
    return {"parent_id": candidates[0]["id"], "instance_uuid": candidates[0]["instance_uuid"]}


def _awaiting_connection(
    rows: Sequence[AttachmentRow], user_id: str | None
) -> list[AttachmentRow]:
    """Return the attachment that a user's next connection is for; empty if that is not certain."""
    own = attachment_rows.of_user(rows, user_id)
    waiting = attachment_rows.of_user(legacy_rows.without_connection(rows), user_id)
    certain = len(waiting) == 1 and not attachment_rows.of_kind(own, AttachmentKind.HOLD)
    return waiting if certain else []


def count_consumers(rows: Sequence[AttachmentRow]) -> int:
    """Count the consumers that have no attachment yet; a user's hold and connection are of one."""
    connections = attachment_rows.holding(attachment_rows.of_kind(rows, AttachmentKind.CONNECTION))
    unused = [row for row in connections if row["parent_id"] is None]
    holds = attachment_rows.of_kind(rows, AttachmentKind.HOLD)
    users = {row["user_id"] for row in (*holds, *unused)}
    return sum(
        max(len(attachment_rows.of_user(holds, user)), len(attachment_rows.of_user(unused, user)))
        for user in users
    )

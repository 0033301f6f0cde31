# SPDX-License-Identifier: Apache-2.0
"""Which of a volume's rows hold it, which of them clients see, and how messages describe them."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import models
from attachd.db.attachments import events
from attachd.states import AttachmentKind, AttachmentState

Row = dict[str, Any]


def holding(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that hold their volume: a connect that surely failed does not."""
    return [row for row in rows if AttachmentState(row["state"]) not in states.INACTIVE]


def visible(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that clients see as attachments."""
    return [row for row in rows if row["kind"] in states.VISIBLE_KINDS]


def of_kind(rows: Sequence[Row], kind: AttachmentKind) -> list[Row]:
    """Return the rows of one kind."""
    return [row for row in rows if row["kind"] == kind]


def not_detaching(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are not being removed."""
    return [row for row in rows if row["state"] not in states.DETACHING]


def of_user(rows: Sequence[Row], user_id: str | None) -> list[Row]:
    """Return the rows that one user created."""
    return [row for row in rows if row["user_id"] == user_id]


def find_hold(volume: Row, rows: Sequence[Row], user_id: str | None) -> Row | None:
    """Return the hold that a user releases or makes use of, the oldest one; None: there is none.

    None of the older calls names a hold. An ordinary volume has one at most; of several, those of
    other users are not touched.
    """
    holds = of_kind(rows, AttachmentKind.HOLD)
    return next(iter(of_user(holds, user_id) if volume["multiattach"] else holds), None)


def is_on_host(made: Row, host: str | None) -> bool:
    """Return whether an attachment is on a host; a machine without a server may be named as
    one.
    """
    return host is not None and host in {made["host"], made["instance_uuid"]}


def without_connection(rows: Sequence[Row]) -> list[Row]:
    """Return the legacy attachments that are not being removed and have no connection yet."""
    connections = holding(of_kind(rows, AttachmentKind.CONNECTION))
    served = {row["parent_id"] for row in connections}
    made = not_detaching(of_kind(rows, AttachmentKind.LEGACY))
    return [row for row in made if row["id"] not in served]


def connections_to_close(current: Row, others: Sequence[Row]) -> list[Row]:
    """Return the connections that end with an attachment.

    With the last legacy attachment of a user end the connections without a parent that this user
    opened, unless a hold of the user remains, to which they may belong.

    :param others: the volume's other rows
    """
    connections = of_kind(others, AttachmentKind.CONNECTION)
    reach = {current["id"]}
    theirs = of_user(others, current["user_id"])
    claims = of_kind(theirs, AttachmentKind.HOLD)
    claims += holding(of_kind(theirs, AttachmentKind.LEGACY))
    if current["kind"] == AttachmentKind.LEGACY and not claims:
        reach |= {row["id"] for row in theirs if row["parent_id"] is None}
    return [row for row in connections if reach & {row["id"], row["parent_id"]}]


def describe(row: Row) -> str:
    """Describe a row in a message, so that its reader can act on it."""
    if row["kind"] == AttachmentKind.HOLD:
        return "a reservation of os-reserve"
    if row["kind"] == AttachmentKind.CONNECTION:
        return f"the connection of host {row['host']} (os-initialize_connection)"
    server = f" of server {row['instance_uuid']}" if row["instance_uuid"] else ""
    return f"attachment {row['id']}{server}"


_ATTACHMENTS = models.attachments


def list_holding(connection: sa.Connection, volume_id: str) -> list[Row]:
    """Return the rows that hold a volume, without connector and secrets, under the volume's
    lock.
    """
    rows = connection.execute(
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
    return [dict(row._mapping) for row in rows]


def describe_all(attachments: Sequence[Row]) -> str:
    """Describe the holders in a message, five at most."""
    return ", ".join(
        f"{describe(row)} ({AttachmentState(row['state']).wire})" for row in attachments[:5]
    )


def check_detached(row: Row, attachments: Sequence[Row]) -> None:
    """Check that a volume that is to be deleted has no holder; raises InvalidVolume."""
    if attachments:
        raise exception.InvalidVolume(
            reason=f"Volume {row['id']} cannot be deleted while it has attachments: "
            f"{describe_all(attachments)}."
        )


def delete_of_volume(connection: sa.Connection, volume_id: str) -> None:
    """Delete the remaining rows of a volume that goes: attachments that never connected."""
    rows = connection.execute(
        sa.select(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id == volume_id)
    ).all()
    for row in rows:
        events.record(connection, dict(row._mapping), events.DELETED)
    connection.execute(sa.delete(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id == volume_id))

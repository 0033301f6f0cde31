# SPDX-License-Identifier: Apache-2.0
"""Which of a volume's rows hold it, which of them clients know, and how they are called."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import models
from attachd.db.attachments import events
from attachd.states import AttachmentKind, AttachmentState

Row = dict[str, Any]

DETACHING: Final = frozenset({AttachmentState.DISCONNECTING, AttachmentState.DISCONNECT_FAILED})
"""States in which an attachment is on its way out."""


def holding(rows: Sequence[Row]) -> list[Row]:
    """Return those that hold their volume: a connect that surely failed does not."""
    return [row for row in rows if AttachmentState(row["state"]) not in states.INACTIVE]


def visible(rows: Sequence[Row]) -> list[Row]:
    """Return those that clients know as attachments."""
    return [row for row in rows if row["kind"] in states.VISIBLE_KINDS]


def of_kind(rows: Sequence[Row], kind: AttachmentKind) -> list[Row]:
    """Return those of one kind."""
    return [row for row in rows if row["kind"] == kind]


def not_detaching(rows: Sequence[Row]) -> list[Row]:
    """Return those that are not on their way out."""
    return [row for row in rows if row["state"] not in DETACHING]


def of_user(rows: Sequence[Row], user_id: str | None) -> list[Row]:
    """Return those that one user made."""
    return [row for row in rows if row["user_id"] == user_id]


def find_hold(volume: Row, rows: Sequence[Row], user_id: str | None) -> Row | None:
    """Return the hold that a user gives back or makes use of, the oldest one; None: there is none.

    None of the older calls names a hold.  An ordinary volume has one at most; of several, those
    that other users took are not touched.
    """
    holds = of_kind(rows, AttachmentKind.HOLD)
    return next(iter(of_user(holds, user_id) if volume["multiattach"] else holds), None)


def is_on_host(made: Row, host: str | None) -> bool:
    """Tell whether an attachment is on a host; a machine without a server may be named as one."""
    return host is not None and host in {made["host"], made["instance_uuid"]}


def without_connection(rows: Sequence[Row]) -> list[Row]:
    """Return what is attached by a word alone, and stays, whose host is still to be connected."""
    connections = holding(of_kind(rows, AttachmentKind.CONNECTION))
    served = {row["parent_id"] for row in connections}
    made = not_detaching(of_kind(rows, AttachmentKind.LEGACY))
    return [row for row in made if row["id"] not in served]


def other_holders_for_host(
    rows: Sequence[Row], host: str | None, user_id: str | None
) -> list[Row]:
    """Return whoever has a volume, if a connection of this host would be one more.

    It would not where the user has a hold that is for no connection yet, nor where something is
    attached by a word alone, by this user or at this host, which is not connected.
    """
    connections = holding(of_kind(rows, AttachmentKind.CONNECTION))
    unused = [row for row in of_user(connections, user_id) if row["parent_id"] is None]
    expected = len(of_user(of_kind(rows, AttachmentKind.HOLD), user_id)) > len(unused)
    waiting = [
        row
        for row in without_connection(rows)
        if row["user_id"] == user_id or is_on_host(row, host)
    ]
    return [] if expected or waiting else [*holding(visible(rows)), *connections]


def connections_to_close(current: Row, others: Sequence[Row]) -> list[Row]:
    """Return the connections that end with an attachment.

    With the last one that a user made by a word alone goes what nobody has said the use of and
    this user opened, unless a hold of theirs is left, which it may be for.

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
    """Name a row in a way that whoever is in its way can do something about it."""
    if row["kind"] == AttachmentKind.HOLD:
        return "a reservation of os-reserve"
    if row["kind"] == AttachmentKind.CONNECTION:
        return f"the connection of host {row['host']} (os-initialize_connection)"
    server = f" of server {row['instance_uuid']}" if row["instance_uuid"] else ""
    return f"attachment {row['id']}{server}"


_ATTACHMENTS = models.attachments


def list_holding(connection: sa.Connection, volume_id: str) -> list[Row]:
    """Return ids and states of the attachments that count, under the volume's lock."""
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
    """Name those who hold it, for people; not more than a few."""
    return ", ".join(
        f"{describe(row)} ({AttachmentState(row['state']).wire})" for row in attachments[:5]
    )


def check_detached(row: Row, attachments: Sequence[Row]) -> None:
    """Raise InvalidVolume if a volume that is to go is held by somebody."""
    if attachments:
        raise exception.InvalidVolume(
            reason=f"Volume {row['id']} cannot be deleted while it has attachments: "
            f"{describe_all(attachments)}."
        )


def delete_of_volume(connection: sa.Connection, volume_id: str) -> None:
    """Remove what is left when the volume goes: attachments that never came to be hold nothing."""
    rows = connection.execute(
        sa.select(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id == volume_id)
    ).all()
    for row in rows:
        events.record(connection, dict(row._mapping), events.DELETED)
    connection.execute(sa.delete(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id == volume_id))

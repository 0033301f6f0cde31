# SPDX-License-Identifier: Apache-2.0
"""Which of a volume's rows hold it, which of them clients know, and how they are called."""

from collections.abc import Sequence
from typing import Any

from attachd import states
from attachd.states import AttachmentKind, AttachmentState

Row = dict[str, Any]


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


def name(row: Row) -> str:
    """Name a row in a way that whoever is in its way can do something about it."""
    if row["kind"] == AttachmentKind.HOLD:
        return "a reservation of os-reserve"
    if row["kind"] == AttachmentKind.CONNECTION:
        return f"the connection of host {row['host']} (os-initialize_connection)"
    server = f" of server {row['instance_uuid']}" if row["instance_uuid"] else ""
    return f"attachment {row['id']}{server}"

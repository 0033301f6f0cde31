# SPDX-License-Identifier: Apache-2.0
"""Rows put into the database as they are, whatever the rules say; for tests of the rules.

The volume's status follows its attachments, as everybody may take for granted.
"""

from typing import Any

import sqlalchemy as sa

from attachd import states
from attachd.db import models
from attachd.db.engine import session

Row = dict[str, Any]

PROJECT = "a" * 32
CONNECTOR = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:compute-1"}
OTHER_CONNECTOR = {"host": "compute-2", "initiator": "iqn.2026-01.org.example:compute-2"}
_WITHOUT_CONNECTOR = frozenset({"held", "reserved"})


def add_volume(state: str = "ready", **values: Any) -> Row:
    """Insert a volume without attachments."""
    derived = states.derive(states.VolumeState(state), ())
    row = {
        "id": models.new_id(),
        "project_id": PROJECT,
        "user_id": "u",
        "size_gib": 1,
        "state": state,
        "host": "here@fake#pool",
        **derived._asdict(),
        **values,
    }
    with session.writer() as connection:
        connection.execute(sa.insert(models.volumes).values(row))
    return volume(row["id"])


def add_attachment(volume_id: str, state: str = "reserved", **values: Any) -> Row:
    """Insert an attachment, with a connector if it has been connecting, and derive anew."""
    row = {
        "id": models.new_id(),
        "volume_id": volume_id,
        "project_id": PROJECT,
        "kind": "hold" if state == "held" else "attachment",
        "state": state,
        "connector": None if state in _WITHOUT_CONNECTOR else CONNECTOR,
        "host": None if state in _WITHOUT_CONNECTOR else CONNECTOR["host"],
        "secret": None if state in _WITHOUT_CONNECTOR else "5" * 32,
        "asked_mode": values.get("mode"),
        "created_at": models.now(),
        **values,
    }
    with session.writer() as connection:
        connection.execute(sa.insert(models.attachments).values(row))
    _derive(volume_id)
    return row


def _derive(volume_id: str) -> None:
    held = [states.AttachmentState(row["state"]) for row in attachments(volume_id)]
    row = volume(volume_id)
    derived = states.derive(states.VolumeState(row["state"]), held, row["pending_detaches"])
    change_volume(volume_id, **derived._asdict())


def change_volume(volume_id: str, **values: Any) -> None:
    """Overwrite columns of a volume."""
    _update(models.volumes, volume_id, values)


def change_attachment(attachment_id: str, **values: Any) -> None:
    """Overwrite columns of an attachment; its volume's status is left as it is."""
    _update(models.attachments, attachment_id, values)


def change_service(host: str, **values: Any) -> None:
    """Overwrite columns of what a host reported."""
    table = models.services
    with session.writer() as connection:
        connection.execute(sa.update(table).where(table.c.host == host).values(values))


def change_agent(host: str, **values: Any) -> None:
    """Overwrite columns of what the agent of a host reported."""
    table = models.agents
    with session.writer() as connection:
        connection.execute(sa.update(table).where(table.c.host == host).values(values))


def _update(table: sa.Table, row_id: str, values: Row) -> None:
    with session.writer() as connection:
        connection.execute(sa.update(table).where(table.c.id == row_id).values(values))


def volume(volume_id: str) -> Row:
    """Read a volume; raises when it is gone."""
    return _read(models.volumes, models.volumes.c.id == volume_id)[0]


def volumes() -> list[Row]:
    """Read all volumes."""
    return _read(models.volumes, sa.true())


def attachment(attachment_id: str) -> Row:
    """Read an attachment; raises when it is gone."""
    return _read(models.attachments, models.attachments.c.id == attachment_id)[0]


def attachments(volume_id: str | None = None) -> list[Row]:
    """Read the attachments of a volume, or all, oldest first."""
    table = models.attachments
    return _read(table, sa.true() if volume_id is None else table.c.volume_id == volume_id)


def agents() -> list[Row]:
    """Read all agents of hosts."""
    return _read(models.agents, sa.true())


def remove_attachment(attachment_id: str) -> None:
    """Remove an attachment, and derive anew."""
    volume_id = attachment(attachment_id)["volume_id"]
    with session.writer() as connection:
        table = models.attachments
        connection.execute(sa.delete(table).where(table.c.id == attachment_id))
    _derive(volume_id)


def remove_all() -> None:
    """Remove all volumes and attachments."""
    with session.writer() as connection:
        for table in (models.attachments, models.volume_metadata, models.volumes):
            connection.execute(sa.delete(table))


def _read(table: sa.Table, where: sa.ColumnElement[bool]) -> list[Row]:
    with session.reader() as connection:
        found = connection.execute(sa.select(table).where(where).order_by(table.c.created_at))
        return [dict(row._mapping) for row in found]

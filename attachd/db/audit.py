# SPDX-License-Identifier: Apache-2.0
"""Reads of an audit, and its one write; used by manager/audit/."""

from collections.abc import Iterator, Sequence
import datetime
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd import states
from attachd.db import models
from attachd.db.attachments import statements
from attachd.db.cluster import members
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, DriverVolumeRow, VolumeRow
from attachd.db.volumes import volume_queries
from attachd.states import VISIBLE_KINDS, AttachmentState, VolumeState, VolumeStatus

_VOLUMES = models.volumes
_ATTACHMENTS = models.attachments
_SERVER_ATTACHMENTS = sa.select(
    *(
        _ATTACHMENTS.c[name]
        for name in (
            *("id", "volume_id", "project_id", "instance_uuid", "host", "state", "generation"),
            *("by_service", "created_at", "updated_at"),
        )
    ),
    _VOLUMES.c.host.label("volume_host"),
).join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)


class ServerAttachmentRow(TypedDict):
    """An attachment, with what an audit compares with Compute."""

    id: str
    volume_id: str
    project_id: str
    instance_uuid: str | None
    host: str | None
    state: str
    generation: int
    by_service: bool | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    volume_host: str | None


class StoredSnapshotRow(TypedDict):
    """A snapshot, with what an audit compares with the backend."""

    id: str
    volume_id: str
    state: str


class Page(NamedTuple):
    """Some volumes of a backend, as of :func:`find_volume`, and all their attachments."""

    volumes: dict[str, DriverVolumeRow]
    attachments: list[AttachmentRow]


def list_pages(backend: str) -> Iterator[Page]:
    """Yield the volumes of ``host@backend`` in pages, in the order of their ids."""
    for volume_ids in volume_queries.page_ids(backend):
        yield Page(
            {row["id"]: row for row in _list_volumes(volume_ids)}, _list_attachments(volume_ids)
        )


@retried
def _list_volumes(volume_ids: Sequence[str]) -> list[DriverVolumeRow]:
    statement = (
        sa.select(_VOLUMES, *statements.TYPE_COLUMNS)
        .where(_VOLUMES.c.id.in_(volume_ids))
        .order_by(_VOLUMES.c.id)
    )
    return session.fetch_all(statement, DriverVolumeRow)


@retried
def _list_attachments(volume_ids: Sequence[str]) -> list[AttachmentRow]:
    statement = sa.select(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id.in_(volume_ids))
    return session.fetch_all(statement, AttachmentRow)


def list_attachments_of_volume(volume_id: str) -> list[AttachmentRow]:
    """Return the attachments of a volume, secrets included."""
    return _list_attachments([volume_id])


@retried
def list_server_attachments(server_id: str | None = None) -> list[ServerAttachmentRow]:
    """Return the attachments that Compute may have made for servers, of all backends.

    Those that a host's agent connects are not among them, and no secrets.

    :param server_id: only those of this server; None: all
    """
    server = _ATTACHMENTS.c.instance_uuid
    statement = (
        _SERVER_ATTACHMENTS.where(
            server.is_not(None) if server_id is None else server == server_id
        )
        .where(_ATTACHMENTS.c.agent.is_(None), _ATTACHMENTS.c.kind.in_(sorted(VISIBLE_KINDS)))
        .order_by(_ATTACHMENTS.c.id)
    )
    return session.fetch_all(statement, ServerAttachmentRow)


@retried
def find_server_attachment(attachment_id: str) -> ServerAttachmentRow | None:
    """Return an attachment of any kind, as of :func:`list_server_attachments`; None: none."""
    statement = _SERVER_ATTACHMENTS.where(_ATTACHMENTS.c.id == attachment_id)
    return session.fetch_one(statement, ServerAttachmentRow)


@retried
def list_snapshots(backend: str) -> list[StoredSnapshotRow]:
    """Return the snapshots of the volumes of ``host@backend``."""
    table = models.snapshots
    statement = (
        sa.select(*(table.c[name] for name in StoredSnapshotRow.__annotations__))
        .join(_VOLUMES, _VOLUMES.c.id == table.c.volume_id)
        .where(models.on_backend(backend))
    )
    return session.fetch_all(statement, StoredSnapshotRow)


def list_living_ids() -> set[str]:
    """Return the ids of the living manager processes."""
    return {str(row["id"]) for row in members.list_living()}


def seconds_unchanged(row: ServerAttachmentRow | AttachmentRow | VolumeRow) -> float:
    """Return the seconds since the last change of a row."""
    return float((models.now() - (row["updated_at"] or row["created_at"])).total_seconds())


def find_volume(volume_id: str) -> DriverVolumeRow | None:
    """Return a volume of any backend, with what a driver gets; None if there is none."""
    return next(iter(_list_volumes([volume_id])), None)


@retried
def get_statuses(volume_id: str) -> tuple[VolumeStatus, VolumeStatus] | None:
    """Return the stored and the computed status of a volume; None: it does not exist any more."""
    with session.writer() as connection:
        result = _compute_locked(connection, volume_id)
    return None if result is None else result[:2]


@retried
def repair_status(volume_id: str) -> None:
    """Store the status that follows from a volume's state and its attachments."""
    with session.writer() as connection:
        if (result := _compute_locked(connection, volume_id)) is not None:
            _stored, right, pending_detaches = result
            values = {**right._asdict(), "pending_detaches": pending_detaches}
            connection.execute(
                sa.update(_VOLUMES).where(_VOLUMES.c.id == volume_id).values(values)
            )


def _compute_locked(
    connection: sa.Connection, volume_id: str
) -> tuple[VolumeStatus, VolumeStatus, int] | None:
    """Read a volume and its attachments while the state of neither can change."""
    statement = sa.select(_VOLUMES).where(_VOLUMES.c.id == volume_id).with_for_update()
    row: Any = connection.execute(statement).mappings().one_or_none()
    if row is None:
        return None
    held = connection.execute(
        sa.select(_ATTACHMENTS.c.state).where(_ATTACHMENTS.c.volume_id == volume_id)
    ).scalars()
    return compute_statuses(row, [AttachmentState(item) for item in held])


def compute_statuses(
    row: VolumeRow, held: list[AttachmentState]
) -> tuple[VolumeStatus, VolumeStatus, int]:
    """Return a volume's stored status, the computed one, and its pending detaches."""
    pending_detaches = states.remaining_detaches(row["pending_detaches"], held)
    right = states.derive(VolumeState(row["state"]), held, pending_detaches)
    return VolumeStatus(row["status"], row["attach_status"]), right, pending_detaches

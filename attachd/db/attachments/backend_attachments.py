# SPDX-License-Identifier: Apache-2.0
"""Attachments as drivers get them, of a page of volumes; for tasks that go through a backend.

The pages are those of volume_queries.page_ids(), or of hosts with agents.
"""

from collections.abc import Sequence
import datetime
from typing import Any, Final, TypedDict

import sqlalchemy as sa

from attachd.db import models
from attachd.db.attachments import statements
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import DriverVolume
from attachd.db.secrets.encryption import Encrypted
from attachd.states import LIVE, VISIBLE_KINDS, AttachmentState

_ATTACHMENTS = models.attachments
_VOLUMES = models.volumes
_IN_VOLUME: Final = (
    *("size_gib", "provider", "provider_secrets", "name", "project_id", "host", "multiattach"),
)
_WITH_DRIVER_COLUMNS = sa.select(
    *(
        _ATTACHMENTS.c[name]
        for name in (
            *("id", "volume_id", "project_id", "kind", "instance_uuid", "host", "agent"),
            *("connector", "mode", "own_connection", "provider_secrets", "generation"),
            *("attached_at", "condition_state", "observed", "by_service", "secret_agent"),
        )
    ),
    *(_VOLUMES.c[name].label(f"volume_{name}") for name in _IN_VOLUME),
    *statements.TYPE_COLUMNS,
).join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)


class DriverAttachmentRow(TypedDict):
    """An attachment, with what a driver gets of it and of its volume."""

    id: str
    volume_id: str
    project_id: str
    kind: str
    instance_uuid: str | None
    host: str | None
    agent: str | None
    connector: dict[str, Any] | None
    mode: str | None
    own_connection: bool | None
    provider_secrets: dict[str, Any] | Encrypted | None
    generation: int
    attached_at: datetime.datetime | None
    condition_state: str | None
    observed: dict[str, Any] | None
    volume_size_gib: int
    volume_provider: dict[str, Any]
    volume_provider_secrets: dict[str, Any] | Encrypted | None
    volume_name: str | None
    volume_project_id: str
    volume_host: str | None
    volume_multiattach: bool
    type_specs: dict[str, str | None] | None
    back_end_qos: dict[str, str | None] | None


_ATTACHED: Final = (
    _ATTACHMENTS.c.state == AttachmentState.ATTACHED.value,
    _ATTACHMENTS.c.kind.in_(sorted(VISIBLE_KINDS)),
)


@retried
def count_by_agent(backend: str) -> dict[str, int]:
    """Return the number of attached attachments of ``host@backend`` that each agent makes.

    :returns: by the name of the host, sorted; hosts without one are missing
    """
    statement = (
        sa.select(_ATTACHMENTS.c.agent, sa.func.count().label("number"))
        .join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)
        .where(models.on_backend(backend), _ATTACHMENTS.c.agent.is_not(None), *_ATTACHED)
        .group_by(_ATTACHMENTS.c.agent)
        .order_by(_ATTACHMENTS.c.agent)
    )
    with session.reader() as connection:
        return {row.agent: row.number for row in connection.execute(statement)}


@retried
def list_of_agents(backend: str, hosts: Sequence[str]) -> list[DriverAttachmentRow]:
    """Return the attached attachments of ``host@backend`` that the agents of some hosts make."""
    return _list(_ATTACHMENTS.c.agent.in_(hosts), models.on_backend(backend), *_ATTACHED)


@retried
def list_without_agent(
    volume_ids: Sequence[str], *, observed_only: bool = False
) -> list[DriverAttachmentRow]:
    """Return the attached attachments of some volumes whose devices no agent makes.

    :param observed_only: only those that were observed before
    """
    conditions = [_ATTACHMENTS.c.agent.is_(None), *_ATTACHED]
    if observed_only:
        conditions.append(_ATTACHMENTS.c.condition_state.is_not(None))
    return _list(_ATTACHMENTS.c.volume_id.in_(volume_ids), *conditions)


@retried
def list_live(volume_ids: Sequence[str]) -> list[DriverAttachmentRow]:
    """Return the attachments of some volumes that a host has access to, or is being given."""
    return _list(_ATTACHMENTS.c.volume_id.in_(volume_ids), _ATTACHMENTS.c.state.in_(LIVE))


def _list(*conditions: sa.ColumnElement[bool]) -> list[DriverAttachmentRow]:
    statement = _WITH_DRIVER_COLUMNS.where(*conditions).order_by(
        _ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id
    )
    return session.fetch_all(statement, DriverAttachmentRow)


def volume_of(row: DriverAttachmentRow) -> DriverVolume:
    """Return the volume of an attachment, with what a driver gets."""
    return {
        "id": row["volume_id"],
        "size_gib": row["volume_size_gib"],
        "provider": row["volume_provider"],
        "provider_secrets": row["volume_provider_secrets"],
        "name": row["volume_name"],
        "project_id": row["volume_project_id"],
        "host": row["volume_host"],
        "multiattach": row["volume_multiattach"],
        "type_specs": row["type_specs"],
        "back_end_qos": row["back_end_qos"],
    }

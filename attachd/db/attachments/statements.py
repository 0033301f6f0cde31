# SPDX-License-Identifier: Apache-2.0
"""The statements of attaching and detaching; executed by attachment_store.py, attachment_rows.py
and legacy.py.

They are built once, and most are compiled once: SQLAlchemy spends more on building a statement
than on executing it. Values for ``match_id`` and the like are passed at execution, with the
columns to store.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import sqlalchemy as sa

from attachd import states
from attachd.db import models, quotas
from attachd.db.cluster import volume_leases
from attachd.db.engine.compiled import CompiledSelect, CompiledStatement
from attachd.db.row_types import AttachmentRow, AttachmentWithVolumeRow, LockedVolumeRow
from attachd.states import AttachmentState, Event, VolumeState

_ATTACHMENTS = models.attachments
_VOLUMES = models.volumes
_VOLUME_TYPES = models.volume_types
_QOS_SPECS = models.qos_specs

_AVAILABLE = states.derive(VolumeState.READY, ())
_RESERVED = states.derive(VolumeState.READY, (AttachmentState.RESERVED,))
_ATTACHED = (AttachmentState.ATTACHED,)
_OLDEST_FIRST = (_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)

# Each column that is read costs time in PyMySQL.
_LOCKED_COLUMNS = (
    _VOLUMES.c.id,
    _VOLUMES.c.size_gib,
    _VOLUMES.c.state,
    _VOLUMES.c.status,
    _VOLUMES.c.attach_status,
    _VOLUMES.c.pending_detaches,
    _VOLUMES.c.multiattach,
    _VOLUMES.c.host,
    _VOLUMES.c.provider,
    _VOLUMES.c.admin_metadata,
    *volume_leases.COLUMNS,
)

_SPECS_OF_VOLUME = (
    sa.select(_QOS_SPECS.c.specs)
    .join(_VOLUME_TYPES, _VOLUME_TYPES.c.qos_specs_id == _QOS_SPECS.c.id)
    .where(_VOLUME_TYPES.c.id == _VOLUMES.c.volume_type_id)
    .correlate(_VOLUMES)
)

# The QoS specs that a host enforces, and those for the backend, read by the statement that locks
# the volume.
_FRONT_END_QOS = (
    _SPECS_OF_VOLUME.where(_QOS_SPECS.c.consumer != "back-end")
    .scalar_subquery()
    .label("front_end_qos")
)
_BACK_END_QOS = (
    _SPECS_OF_VOLUME.where(_QOS_SPECS.c.consumer != "front-end")
    .scalar_subquery()
    .label("back_end_qos")
)

TYPE_SPECS: Final = (
    sa.select(_VOLUME_TYPES.c.extra_specs)
    .where(_VOLUME_TYPES.c.id == _VOLUMES.c.volume_type_id)
    .correlate(_VOLUMES)
    .scalar_subquery()
    .label("type_specs")
)
"""The extra specs of a volume's type, such as how the volume may be shared."""

# Whether any host is fenced or drained; if so, the host in question is looked up.
_FENCES = models.host_fences
_ANY_CLOSED = (
    sa.exists()
    .where(sa.or_(_FENCES.c.fenced_at.is_not(None), _FENCES.c.drained_at.is_not(None)))
    .label("any_host_closed")
)

TYPE_COLUMNS: Final = (TYPE_SPECS, _BACK_END_QOS)
"""What a driver gets of a volume's type: its extra specs, and the QoS specs for the backend."""

_DRIVER_COLUMNS = (
    _VOLUMES.c.name,
    _VOLUMES.c.project_id,
    _VOLUMES.c.provider_secrets,
    *TYPE_COLUMNS,
)

_LOCK = (
    sa.select(*_LOCKED_COLUMNS).where(_VOLUMES.c.id == sa.bindparam("match_id")).with_for_update()
)
LOCK_VOLUME: Final = CompiledSelect(_LOCK, LockedVolumeRow)
LOCK_VOLUME_TO_RESERVE: Final = CompiledSelect(
    _LOCK.add_columns(
        *(_VOLUMES.c.project_id, TYPE_SPECS, _ANY_CLOSED),
        quotas.SET_FOR_ATTACHMENTS.label("attachments_quota"),
    ),
    LockedVolumeRow,
)
LOCK_VOLUME_TO_CONNECT: Final = CompiledSelect(
    _LOCK.add_columns(*_DRIVER_COLUMNS, _FRONT_END_QOS, _ANY_CLOSED), LockedVolumeRow
)
LOCK_VOLUME_TO_DISCONNECT: Final = CompiledSelect(
    _LOCK.add_columns(*_DRIVER_COLUMNS), LockedVolumeRow
)
UPDATE_VOLUME: Final = CompiledStatement(
    sa.update(_VOLUMES).where(_VOLUMES.c.id == sa.bindparam("match_id"))
)
SEEN_COLUMNS: Final = ("id", "lease_holder", "lease_generation", "updated_at")
UPDATE_VOLUME_IF_UNCHANGED: Final = CompiledStatement(
    sa.update(_VOLUMES).where(
        *(_VOLUMES.c[name] == sa.bindparam(f"match_{name}") for name in SEEN_COLUMNS)
    )
)
"""Updates a volume that has not changed since SEEN_COLUMNS were read."""
_RESERVE_FREE_VOLUME = (
    sa.update(_VOLUMES)
    .where(
        _VOLUMES.c.id == sa.bindparam("match_id"),
        # It may have been transferred to another project since it was read.
        _VOLUMES.c.project_id == sa.bindparam("match_project"),
        _VOLUMES.c.state == VolumeState.READY.value,
        _VOLUMES.c.status == _AVAILABLE.status,
        _VOLUMES.c.multiattach.is_(False),
        # The same request may have failed before: duplicates.py finds its attachment.
        ~sa.exists().where(
            _ATTACHMENTS.c.volume_id == _VOLUMES.c.id,
            _ATTACHMENTS.c.state == AttachmentState.CONNECT_FAILED.value,
            _ATTACHMENTS.c.instance_uuid == sa.bindparam("match_server"),
        ),
    )
    .values(status=_RESERVED.status, attach_status=_RESERVED.attach_status)
)
RESERVE_FREE_VOLUME: Final = CompiledStatement(_RESERVE_FREE_VOLUME)
RESERVE_FREE_VOLUME_WITHOUT_QUOTA: Final = CompiledStatement(
    _RESERVE_FREE_VOLUME.where(quotas.SET_FOR_ATTACHMENTS == quotas.UNLIMITED)
)
"""Reserves the volume only if no limit is set for the attachments of its project."""

# No state outranks "attached", so no other attachment has to be read.
SET_VOLUME_ATTACHED: Final = CompiledStatement(
    sa.update(_VOLUMES)
    .where(_VOLUMES.c.id == sa.bindparam("match_id"))
    .values(
        pending_detaches=0,
        attach_status=states.derive(VolumeState.READY, _ATTACHED).attach_status,
        status=sa.case(
            {state.value: states.derive(state, _ATTACHED).status for state in VolumeState},
            value=_VOLUMES.c.state,
        ),
    )
)

INSERT: Final = CompiledStatement(sa.insert(_ATTACHMENTS))
UPDATE: Final = sa.update(_ATTACHMENTS).where(_ATTACHMENTS.c.id == sa.bindparam("match_id"))
LIST_OF_VOLUME: Final = CompiledSelect(
    sa.select(_ATTACHMENTS)
    .where(_ATTACHMENTS.c.volume_id == sa.bindparam("match_id"))
    .order_by(*_OLDEST_FIRST),
    AttachmentRow,
)
WITH_VOLUME: Final = sa.select(
    _ATTACHMENTS,
    *(
        _VOLUMES.c[name].label(f"volume_{name}")
        for name in ("host", "state", "status", "multiattach")
    ),
).join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)
_GET = WITH_VOLUME.where(_ATTACHMENTS.c.id == sa.bindparam("match_id"))
GET: Final = CompiledSelect(_GET, AttachmentWithVolumeRow)
GET_IN_PROJECT: Final = CompiledSelect(
    _GET.where(_ATTACHMENTS.c.project_id == sa.bindparam("match_project")), AttachmentWithVolumeRow
)

# As literals, because SQLAlchemy would otherwise write each list of values anew.
_IN_SOURCE_STATE = {
    event: _ATTACHMENTS.c.state.in_(
        [sa.literal_column(f"'{source.value}'") for source in move.sources]
    )
    for event, move in states.ATTACHMENT_TRANSITIONS.items()
}

_SWAP = {
    event: (sa.delete(_ATTACHMENTS) if move.target is None else sa.update(_ATTACHMENTS)).where(
        _ATTACHMENTS.c.id == sa.bindparam("match_id"), _IN_SOURCE_STATE[event]
    )
    for event, move in states.ATTACHMENT_TRANSITIONS.items()
}

SWAP: Final[Mapping[Event, CompiledStatement]] = MappingProxyType(
    {event: CompiledStatement(statement) for event, statement in _SWAP.items()}
)
"""Updates or deletes the row if it is in a source state of the event."""

COMPLETE_FIRST: Final = CompiledStatement(
    sa.update(_ATTACHMENTS).where(
        _ATTACHMENTS.c.id == sa.bindparam("match_id"),
        _ATTACHMENTS.c.state != AttachmentState.ATTACHED.value,
        _IN_SOURCE_STATE[Event.COMPLETE],
    )
)
"""Moves an attachment along COMPLETE that has not been completed before."""

SWAP_IN_GENERATION: Final[Mapping[Event, CompiledStatement]] = MappingProxyType(
    {
        event: CompiledStatement(
            statement.where(_ATTACHMENTS.c.generation == sa.bindparam("match_generation"))
        )
        for event, statement in _SWAP.items()
    }
)
"""As SWAP, only if the row still has this generation."""

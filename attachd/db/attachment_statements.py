# SPDX-License-Identifier: Apache-2.0
"""The statements that attaching and detaching are made of; executed by attachment_steps.py.

They are built once, and most are prepared: SQLAlchemy spends more on building a statement than
on executing it.  What is bound to ``the_id`` and the like is given at the execution, together with
the columns to store.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import sqlalchemy as sa

from attachd import states
from attachd.db import leases, models
from attachd.db.prepared import Prepared
from attachd.states import AttachmentState, Event, VolumeState

_T = models.attachments
_V = models.volumes
_TYPES = models.volume_types
_Q = models.qos_specs

_FREE = states.derive(VolumeState.READY, ())
_RESERVED = states.derive(VolumeState.READY, (AttachmentState.RESERVED,))
_ATTACHED = (AttachmentState.ATTACHED,)
_OLDEST_FIRST = (_T.c.created_at, _T.c.id)

# Each column that is read has its price with PyMySQL.
_OF_A_LOCKED_VOLUME = (
    _V.c.id,
    _V.c.size_gib,
    _V.c.state,
    _V.c.status,
    _V.c.attach_status,
    _V.c.leaving,
    _V.c.multiattach,
    _V.c.host,
    _V.c.provider,
    _V.c.admin_metadata,
    *leases.COLUMNS,
)

# What a host hears of its type's QoS specs, in the statement that locks the volume anyway.
_FRONT_END_QOS = (
    sa.select(_Q.c.specs)
    .join(_TYPES, _TYPES.c.qos_specs_id == _Q.c.id)
    .where(_TYPES.c.id == _V.c.volume_type_id, _Q.c.consumer != "back-end")
    .scalar_subquery()
    .label("front_end_qos")
)

# How it may be attached.
_TYPE_SPECS = (
    sa.select(_TYPES.c.extra_specs)
    .where(_TYPES.c.id == _V.c.volume_type_id)
    .scalar_subquery()
    .label("type_specs")
)

_LOCK = sa.select(*_OF_A_LOCKED_VOLUME).where(_V.c.id == sa.bindparam("the_id")).with_for_update()
LOCK_VOLUME: Final = Prepared(_LOCK)
LOCK_VOLUME_TO_JOIN: Final = Prepared(_LOCK.add_columns(_TYPE_SPECS))
LOCK_VOLUME_TO_CONNECT: Final = Prepared(_LOCK.add_columns(_TYPE_SPECS, _FRONT_END_QOS))
UPDATE_VOLUME: Final = Prepared(sa.update(_V).where(_V.c.id == sa.bindparam("the_id")))
SEEN: Final = ("id", "lease_holder", "lease_generation", "updated_at")
UPDATE_VOLUME_AS_SEEN: Final = Prepared(
    sa.update(_V).where(*(_V.c[name] == sa.bindparam(f"the_{name}") for name in SEEN))
)
"""... if nobody has changed it since these of its columns were seen."""
TAKE_FREE_VOLUME: Final = Prepared(
    sa.update(_V)
    .where(
        _V.c.id == sa.bindparam("the_id"),
        _V.c.state == VolumeState.READY.value,
        _V.c.status == _FREE.status,
        _V.c.multiattach.is_(False),
    )
    .values(status=_RESERVED.status, attach_status=_RESERVED.attach_status)
)

# Nothing outranks "attached", so that no other attachment has to be looked at.
STORE_ATTACHED: Final = Prepared(
    sa.update(_V)
    .where(_V.c.id == sa.bindparam("the_id"))
    .values(
        leaving=0,
        attach_status=states.derive(VolumeState.READY, _ATTACHED).attach_status,
        status=sa.case(
            {state.value: states.derive(state, _ATTACHED).status for state in VolumeState},
            value=_V.c.state,
        ),
    )
)

INSERT: Final = Prepared(sa.insert(_T))
UPDATE: Final = sa.update(_T).where(_T.c.id == sa.bindparam("the_id"))
OF_VOLUME: Final = Prepared(
    sa.select(_T).where(_T.c.volume_id == sa.bindparam("the_id")).order_by(*_OLDEST_FIRST)
)
WITH_VOLUME: Final = sa.select(
    _T,
    *(_V.c[name].label(f"volume_{name}") for name in ("host", "state", "status", "multiattach")),
).join(_V, _V.c.id == _T.c.volume_id)
_GET = WITH_VOLUME.where(_T.c.id == sa.bindparam("the_id"))
GET: Final = Prepared(_GET)
GET_IN_PROJECT: Final = Prepared(_GET.where(_T.c.project_id == sa.bindparam("the_project")))

# As literals, because SQLAlchemy would else write each list of values anew.
_SOURCES = {
    event: _T.c.state.in_([sa.literal_column(f"'{source.value}'") for source in move.sources])
    for event, move in states.ATTACHMENT_TRANSITIONS.items()
}

_SWAP = {
    event: (sa.delete(_T) if move.target is None else sa.update(_T)).where(
        _T.c.id == sa.bindparam("the_id"), _SOURCES[event]
    )
    for event, move in states.ATTACHMENT_TRANSITIONS.items()
}

SWAP: Final[Mapping[Event, Prepared]] = MappingProxyType(
    {event: Prepared(statement) for event, statement in _SWAP.items()}
)
"""Changes or removes the row if it is in a state from which the event leads."""

COMPLETE_FIRST: Final = Prepared(
    sa.update(_T).where(
        _T.c.id == sa.bindparam("the_id"),
        _T.c.state != AttachmentState.ATTACHED.value,
        _SOURCES[Event.COMPLETE],
    )
)
"""Moves an attachment along COMPLETE that has not been completed before."""

SWAP_OWNED: Final[Mapping[Event, Prepared]] = MappingProxyType(
    {
        event: Prepared(statement.where(_T.c.generation == sa.bindparam("the_generation")))
        for event, statement in _SWAP.items()
    }
)
"""... and only if it still has this generation."""

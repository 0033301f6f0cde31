# SPDX-License-Identifier: Apache-2.0
"""The volumes table: reading, moving and resetting; used by the objects and the manager.

A volume's ``status`` and ``attach_status`` are written here only as states.derive() gives them.
New volumes are in volume_creation.py, lists in volume_queries.py, metadata in volume_metadata.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import api, copies, holding, leases, models, quota_claims, quotas
from attachd.db import volume_statements as statements
from attachd.states import AttachmentState, Event, VolumeState

Row = dict[str, Any]
_V = models.volumes
_A = models.attachments

OWNED = frozenset({VolumeState.CREATING, VolumeState.DELETING, VolumeState.EXTENDING})
"""States in which the backend's manager has work to do."""

_ENDS = frozenset(
    event for event, move in states.VOLUME_TRANSITIONS.items() if move.sources <= OWNED
)
"""Events that tell how such work has ended."""


@api.retried
def get(volume_id: str, project_id: str | None) -> Row:
    """Return one volume, in one statement.

    :param project_id: only if it belongs to this project; None: whomever it belongs to
    :returns: the row, with ``metadata``, a dict, and ``volume_type_name``
    :raises VolumeNotFound: there is none
    """
    wanted, the = statements.GET, {"the_id": volume_id}
    if project_id is not None:
        wanted, the = statements.GET_IN_PROJECT, {**the, "the_project": project_id}
    with api.reader() as connection:
        found = wanted.rows(connection, the)
    if not found:
        raise exception.VolumeNotFound(volume_id=volume_id)
    pairs = [(row.pop("key"), row.pop("value")) for row in found]
    return {**found[0], "metadata": {key: value for key, value in pairs if key is not None}}


@api.retried
def update(volume_id: str, values: Mapping[str, Any]) -> None:
    """Store columns that no move depends on, such as ``name``.

    :raises VolumeNotFound: there is none
    """
    assert not values.keys() & {"state", "status", "attach_status", "owner"}, values
    with api.writer() as connection:
        done = connection.execute(sa.update(_V).where(_V.c.id == volume_id).values(**values))
        if done.rowcount != 1:
            raise exception.VolumeNotFound(volume_id=volume_id)


@api.retried
def move(
    volume_id: str,
    event: Event,
    values: Mapping[str, Any] | None = None,
    lease: leases.Lease | None = None,
) -> Row:
    """Move a volume along one arrow of the table.

    The owner is set here: the volume's backend where the target says that work is due, else
    nobody.

    :param values: columns to store with the move
    :param lease: of the work that this is the end of; it has to be had
    :returns: the row after it; its last content if the move removed it
    :raises VolumeNotFound: it is gone
    :raises InvalidTransition: it is in no state for this event
    :raises InvalidVolume: it cannot be deleted while it is attached or copied
    :raises TakenOver: somebody else works on it by now
    """
    with api.writer() as connection:
        row = _lock(connection, volume_id)
        if lease is None and event in _ENDS:
            leases.refuse_if_held(connection, row, event.value)
        if lease:
            assert lease.generation is not None, "the end of work that was never begun"
            leases.claim(connection, row, lease)
        return _move(connection, row, event, values or {})


@api.retried
def extend(volume_id: str, project_id: str, new_size_gib: int) -> Row:
    """Move a volume to where its backend lets it grow; see :func:`move`.

    :raises QuotaExceeded: its project may not have that much
    """
    with api.writer() as connection:
        quotas.lock(connection, project_id)
        row = _lock(connection, volume_id)
        claim = quota_claims.of_growth(row["volume_type_id"], row["size_gib"], new_size_gib)
        quota_claims.grant(connection, project_id, claim)
        return _move(connection, row, Event.EXTEND, {"new_size_gib": new_size_gib})


def _move(connection: sa.Connection, row: Row, event: Event, values: Mapping[str, Any]) -> Row:
    """Move a volume whose row is locked."""
    allowed = states.VOLUME_TRANSITIONS[event]
    if row["state"] not in allowed.sources:
        raise exception.InvalidTransition(
            kind="Volume", id=row["id"], source=row["state"], event=event.value
        )
    attached = holding.of_volume(connection, row["id"])
    if event in {Event.DELETE, Event.DELETED}:
        holding.check_detached(row, attached)
    if event is Event.DELETE:
        copies.check_not_copied(connection, row["id"])
    if allowed.target is None:
        _remove(connection, row["id"])
    else:
        owner = models.backend_of(row["host"]) if allowed.target in OWNED else None
        _store(connection, row, allowed.target, attached, {**values, "owner": owner})
    return row


def _lock(connection: sa.Connection, volume_id: str) -> Row:
    row = connection.execute(
        sa.select(_V).where(_V.c.id == volume_id).with_for_update()
    ).one_or_none()
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    return dict(row._mapping)


def _remove(connection: sa.Connection, volume_id: str) -> None:
    holding.remove(connection, volume_id)
    connection.execute(sa.delete(_V).where(_V.c.id == volume_id))


def _store(
    connection: sa.Connection,
    row: Row,
    state: VolumeState,
    attachments: Sequence[Row],
    values: Mapping[str, Any],
) -> None:
    """Swap a volume's state and all that follows from it; ``row`` is brought up to date."""
    held = [AttachmentState(each["state"]) for each in attachments]
    leaving = states.remaining_detaches(row["leaving"], held)
    stored = {
        **values,
        "state": state.value,
        "leaving": leaving,
        **states.derive(state, held, leaving)._asdict(),
        "updated_at": models.now(),
    }
    if "error" in stored:
        stored["error"] = models.shortened(stored["error"])
    unchanged = sa.and_(_V.c.id == row["id"], _V.c.state == row["state"])
    done = connection.execute(sa.update(_V).where(unchanged).values(stored))
    assert done.rowcount == 1, row["id"]
    row.update(stored)


RESETTABLE: Mapping[str, VolumeState] = {
    "available": VolumeState.READY,
    "in-use": VolumeState.READY,
    "attaching": VolumeState.READY,
    "detaching": VolumeState.READY,
    "creating": VolumeState.CREATING,
    "deleting": VolumeState.DELETING,
    "error": VolumeState.ERROR,
    "error_deleting": VolumeState.ERROR_DELETING,
    "maintenance": VolumeState.MAINTENANCE,
}
"""What an administrator may claim a volume's status to be, and its inner state then."""


@api.retried
def reset(volume_id: str, status: str | None, attach_status: str | None) -> Row:
    """Set a volume's status by hand, unless its attachments prove the claim wrong.

    No manager takes up work on it: it has no owner afterwards.

    :param status: one of RESETTABLE, or None to keep it
    :param attach_status: attached, detached, or None
    :returns: the row after it
    :raises VolumeNotFound: there is none
    :raises BadRequest: the volume's attachments say something else
    :raises InvalidTransition: its data is just being removed
    """
    with api.writer() as connection:
        row = _lock(connection, volume_id)
        attachments = holding.of_volume(connection, volume_id)
        state = RESETTABLE[status] if status else VolumeState(row["state"])
        if row["state"] == VolumeState.DELETING and state is VolumeState.READY:
            leases.refuse_if_held(connection, row, "become available again")
        if status in {"available", "in-use"}:
            attachments = _without_claims(connection, row, attachments)
        held = [AttachmentState(each["state"]) for each in attachments]
        derived = states.derive(state, held, row["leaving"])
        _check_claim("status", status, derived.status, attachments)
        _check_claim("attach_status", attach_status, derived.attach_status, attachments)
        if status:
            values: Row = {"owner": None, "new_size_gib": None}
            if state is VolumeState.READY:
                values["error"] = None
            _store(connection, row, state, attachments, values)
    return row


def _without_claims(connection: sa.Connection, row: Row, attachments: Sequence[Row]) -> list[Row]:
    """Drop what nothing but somebody's word stands for: holds, and detaches only begun."""
    row["leaving"] = 0
    held = _A.c.state == AttachmentState.HELD
    connection.execute(sa.delete(_A).where(_A.c.volume_id == row["id"], held))
    return [each for each in attachments if each["state"] != AttachmentState.HELD]


def _check_claim(name: str, claimed: str | None, real: str, attachments: Sequence[Row]) -> None:
    if claimed in {None, real}:
        return
    because = f"attachments: {holding.named(attachments)}" if attachments else "no attachment"
    raise exception.BadRequest(
        reason=f"The volume's {name} cannot be {claimed}: it has {because}, "
        f"which makes it {real}. Change the attachments instead."
    )


@api.retried
def to_recover(backend: str, holder: str) -> list[Row]:
    """Return the volumes that a manager of ``host@backend`` has work to do on, oldest first.

    :param holder: the process that is going to do it: what another living one works on is left
        out
    :returns: rows, with ``orphaned``: whether a process that is dead by now worked on it
    """
    wanted = (
        sa.select(_V, leases.is_orphaned(holder).label("orphaned"))
        .where(_V.c.owner == backend, _V.c.state.in_(OWNED), leases.is_free(holder))
        .order_by(_V.c.created_at, _V.c.id)
    )
    with api.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(wanted)]

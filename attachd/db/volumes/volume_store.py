# SPDX-License-Identifier: Apache-2.0
"""The volumes table: creation, reads, transitions and resets; used by the objects and the manager.

A volume's ``status`` and ``attach_status`` are stored here only as states.derive() returns them.
Lists are in volume_queries.py, metadata in volume_metadata.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

import sqlalchemy as sa

from attachd import exception, states
from attachd.db import models, quotas
from attachd.db.attachments import attachment_rows, statements
from attachd.db.cluster import volume_leases
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledSelect
from attachd.db.engine.retry import retried
from attachd.db.engine.session import RowT
from attachd.db.row_types import (
    AttachmentRow,
    DriverVolumeRow,
    RecoverableVolumeRow,
    VolumeRow,
    VolumeWithMetadataRow,
)
from attachd.db.secrets import encryption
from attachd.db.types import type_store
from attachd.db.volumes import (
    clone_source,
    metadata_pairs,
    snapshot_rules,
)
from attachd.states import AttachmentState, Event, VolumeState

_VOLUMES = models.volumes
_ATTACHMENTS = models.attachments

IN_PROGRESS = frozenset(
    {
        *(VolumeState.CREATING, VolumeState.DELETING, VolumeState.EXTENDING),
        *(VolumeState.MANAGING, VolumeState.UNMANAGING, VolumeState.REVERTING),
        *(VolumeState.DOWNLOADING, VolumeState.UPLOADING),
    }
)
"""States in which the backend's manager has work to do."""

_REVERT_ENDS = frozenset({Event.REVERTED, Event.REVERT_FAILED})
_REMOVALS = frozenset({Event.DELETE, Event.DELETED, Event.UNMANAGE, Event.UNMANAGED})

_RECOVERABLE = IN_PROGRESS | {VolumeState.ERROR_EXTENDING}
"""Of those in error_extending, only the volumes with an owner: their size is not known."""

_COMPLETION_EVENTS = frozenset(
    event for event, its in states.VOLUME_TRANSITIONS.items() if its.sources <= IN_PROGRESS
)
"""Events that record the outcome of such work."""


@retried
def get(volume_id: str, project_id: str | None) -> VolumeWithMetadataRow:
    """Return one volume, in one statement.

    :param project_id: only if it belongs to this project; None: of any project
    :raises VolumeNotFound: there is none
    """
    statement, params = _GET, {"match_id": volume_id}
    if project_id is not None:
        statement, params = _GET_IN_PROJECT, {**params, "match_project": project_id}
    return _get(statement, params)


@retried
def get_for_driver(volume_id: str) -> DriverVolumeRow:
    """Return one volume of any project, in one statement.

    :returns: with metadata as of :func:`get`
    :raises VolumeNotFound: there is none
    """
    return _get(_GET_FOR_DRIVER, {"match_id": volume_id})


def _get(statement: CompiledSelect[RowT], params: Mapping[str, str]) -> RowT:
    with session.reader() as connection:
        rows = statement.fetch_all(connection, params)
    if not rows:
        raise exception.VolumeNotFound(volume_id=params["match_id"])
    joined: Any = rows  # each with a key and a value of the metadata
    pairs = [(row.pop("key"), row.pop("value")) for row in joined]
    joined[0]["metadata"] = {key: value for key, value in pairs if key is not None}
    return rows[0]


@retried
def exists(volume_id: str) -> bool:
    """Return whether there is a volume."""
    statement = sa.select(_VOLUMES.c.id).where(_VOLUMES.c.id == volume_id)
    return bool(session.fetch_all(statement))


@retried
def update(volume_id: str, values: Mapping[str, Any]) -> None:
    """Store columns that no transition depends on, such as ``name``.

    :raises VolumeNotFound: there is none
    """
    assert not values.keys() & {"state", "status", "attach_status", "owner"}, values
    if session.write(sa.update(_VOLUMES).where(_VOLUMES.c.id == volume_id).values(**values)) != 1:
        raise exception.VolumeNotFound(volume_id=volume_id)


@retried
def transition(
    volume_id: str,
    event: Event,
    values: Mapping[str, Any] | None = None,
    volume_lease: volume_leases.VolumeLeaseToken | None = None,
    last: Callable[[sa.Connection, str], None] | None = None,
    statuses: Collection[str] | None = None,
    project_id: str | None = None,
    expected: Mapping[str, Any] | None = None,
) -> VolumeRow:
    """Take a volume through one transition.

    The owner is set here: the volume's backend where the target state needs work, else NULL.

    :param values: columns to store with the transition
    :param volume_lease: of the work that ends with this transition; it has to be acquired
    :param last: executed last in the transaction, with the id of the volume
    :param statuses: the statuses in which it is allowed; None: all
    :param project_id: as of :func:`lock`
    :param expected: columns with the values that they must have: those of the operation that ends
    :returns: the row after it; its last content if the transition removed it
    :raises VolumeNotFound: it does not exist any more
    :raises InvalidTransition: it is in no state for this event, or another operation has followed
    :raises InvalidVolume: it cannot be removed while it is attached or cloned, or has snapshots
    :raises TakenOver: another process works on it by now
    """
    with session.writer() as connection:
        row = lock(connection, volume_id, project_id)
        _check_expected(row, event, statuses, expected or {})
        if volume_lease is None and event in _COMPLETION_EVENTS:
            volume_leases.check_not_held(connection, row, event.value)
        if volume_lease:
            assert volume_lease.generation is not None, "the end of work that was never started"
            volume_leases.acquire(connection, row, volume_lease)
        if event in _REMOVALS:
            snapshot_rules.check_no_snapshots(connection, volume_id)
        moved = move(connection, row, event, values or {})
        if event in _REVERT_ENDS:
            snapshot_rules.end_revert(connection, volume_id)
        if last is not None:
            last(connection, volume_id)
    return moved


def _check_expected(
    row: VolumeRow, event: Event, statuses: Collection[str] | None, expected: Mapping[str, Any]
) -> None:
    columns: Any = row
    is_allowed = statuses is None or row["status"] in statuses
    if not is_allowed or any(columns[name] != expected[name] for name in expected):
        raise exception.InvalidTransition(
            kind="Volume", id=row["id"], source=row["status"], event=event.value
        )


@retried
def extend(volume_id: str, project_id: str, new_size_gib: int) -> VolumeRow:
    """Take a volume to the state in which its backend extends it; see :func:`transition`.

    :raises QuotaExceeded: its project has not enough quota
    """
    with session.writer() as connection:
        quotas.lock_project(connection, project_id)
        row = lock(connection, volume_id, project_id)
        claim = quotas.deltas_of_extend(row["volume_type_id"], row["size_gib"], new_size_gib)
        quotas.enforce(connection, project_id, claim)
        snapshot_rules.check_none_creating(connection, volume_id, Event.EXTEND)
        return move(connection, row, Event.EXTEND, {"new_size_gib": new_size_gib})


@retried
def delete_with_snapshots(volume_id: str, project_id: str | None = None) -> VolumeRow:
    """Take a volume and all its snapshots to their deletion; see :func:`transition`."""
    with session.writer() as connection:
        row = lock(connection, volume_id, project_id)
        snapshot_rules.begin_cascade(connection, row)
        return move(connection, row, Event.DELETE, {})


@retried
def revert(volume_id: str, snapshot_id: str, project_id: str | None = None) -> VolumeRow:
    """Take a volume to the state in which its backend gives it the data of a snapshot.

    :param project_id: as of :func:`lock`
    :raises VolumeNotFound: it does not exist any more
    :raises SnapshotNotFound: the snapshot does not exist any more
    :raises InvalidVolume: it is not available, or another snapshot of it is created
    :raises InvalidSnapshot: the snapshot is not its latest one, or not available
    :raises InvalidTransition: the snapshot is in use
    """
    with session.writer() as connection:
        row = lock(connection, volume_id, project_id)
        if row["status"] != "available":
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} status must be available to be reverted to a "
                f"snapshot, but current status is: {row['status']}."
            )
        snapshot_rules.check_none_creating(connection, volume_id, Event.REVERT)
        clone_source.check_no_pending_clone(connection, volume_id)
        snapshot_rules.begin_revert(connection, row, snapshot_id)
        return move(connection, row, Event.REVERT, {})


def move(
    connection: sa.Connection, row: VolumeRow, event: Event, values: Mapping[str, Any]
) -> VolumeRow:
    """Move a volume whose row is locked, and return ``row`` as it is then; see :func:`transition`.

    :param values: with ``owner`` None, no manager finds work in this row
    :raises InvalidTransition: it is in no state for this event
    :raises InvalidVolume: it cannot be removed while it is attached or cloned
    """
    allowed = states.VOLUME_TRANSITIONS[event]
    if row["state"] not in allowed.sources:
        raise exception.InvalidTransition(
            kind="Volume", id=row["id"], source=row["state"], event=event.value
        )
    attached = attachment_rows.list_holding(connection, row["id"])
    if event in _REMOVALS:
        attachment_rows.check_detached(row, attached)
    if event in {Event.DELETE, Event.UNMANAGE}:
        clone_source.check_no_pending_clone(connection, row["id"])
    if allowed.target is None:
        _delete(connection, row["id"])
    else:
        is_owned = allowed.target in IN_PROGRESS or event is Event.EXTEND_LOST
        owner = models.backend_of(row["host"]) if is_owned else None
        _update_state(connection, row, allowed.target, attached, {"owner": owner, **values})
    return row


@retried
def delete_without_backend(volume_id: str) -> None:
    """Delete a volume that no backend has ever had.

    :raises VolumeNotFound: it does not exist any more
    :raises InvalidTransition: it is in no state for that
    """
    with session.writer() as connection:
        row = lock(connection, volume_id)
        for event in (Event.DELETE, Event.DELETED):
            row = move(connection, row, event, {})


def lock(connection: sa.Connection, volume_id: str, project_id: str | None = None) -> VolumeRow:
    """Lock a volume's row until this transaction ends, and return it.

    :param project_id: that the volume belonged to when the request was allowed: it may have been
        transferred since; None: any
    :raises VolumeNotFound: there is none
    """
    statement = sa.select(_VOLUMES).where(_VOLUMES.c.id == volume_id).with_for_update()
    found = connection.execute(statement).one_or_none()
    if found is None or project_id not in {None, found.project_id}:
        raise exception.VolumeNotFound(volume_id=volume_id)
    return cast("VolumeRow", dict(found._mapping))


def _delete(connection: sa.Connection, volume_id: str) -> None:
    attachment_rows.delete_of_volume(connection, volume_id)
    connection.execute(sa.delete(_VOLUMES).where(_VOLUMES.c.id == volume_id))


def _update_state(
    connection: sa.Connection,
    row: VolumeRow,
    state: VolumeState,
    attachments: Sequence[AttachmentRow],
    values: Mapping[str, Any],
) -> None:
    """Store a volume's state and what follows from it; update ``row``."""
    held = [AttachmentState(item["state"]) for item in attachments]
    pending_detaches = states.remaining_detaches(row["pending_detaches"], held)
    stored: Any = {
        **values,
        "state": state.value,
        "pending_detaches": pending_detaches,
        **states.derive(state, held, pending_detaches)._asdict(),
        "updated_at": models.now(),
    }
    if "error" in stored:
        stored["error"] = models.truncate_error(stored["error"])
    unchanged = sa.and_(_VOLUMES.c.id == row["id"], _VOLUMES.c.state == row["state"])
    bound = encryption.bind(stored, row["id"], encryption.VOLUMES)
    result = connection.execute(sa.update(_VOLUMES).where(unchanged).values(bound))
    assert result.rowcount == 1, row["id"]
    row.update(stored)


_NOT_MANAGED = frozenset({VolumeState.MANAGING, VolumeState.ERROR_MANAGING})
"""States of volumes without data: a deletion after a reset could delete an object that is not
theirs."""

_KEEPS_DATA = frozenset(
    {
        *(VolumeState.READY, VolumeState.AWAITING_TRANSFER, VolumeState.UPLOADING),
        *(VolumeState.EXTENDING, VolumeState.ERROR_EXTENDING),
    }
)
"""States in which a manager that works on a volume leaves its data: in the others, also after a
former reset, it may create it, remove it or write to it."""

RESET_STATES: Mapping[str, VolumeState] = {
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
"""The statuses that an administrator may set, and the inner states for them."""


@retried
def reset(volume_id: str, status: str | None, attach_status: str | None) -> VolumeRow:
    """Set a volume's status by hand, unless its attachments contradict it.

    No manager recovers work on it: it has no owner afterwards.

    :param status: one of RESET_STATES, or None to keep it
    :param attach_status: attached, detached, or None
    :returns: the row after it
    :raises VolumeNotFound: there is none
    :raises BadRequest: the volume's attachments contradict it
    :raises InvalidTransition: it would be available while a manager removes or replaces its data,
        or its data is an object that was not managed
    """
    with session.writer() as connection:
        row = lock(connection, volume_id)
        attachments = attachment_rows.list_holding(connection, volume_id)
        state = RESET_STATES[status] if status else VolumeState(row["state"])
        if row["state"] not in _KEEPS_DATA and state is VolumeState.READY:
            volume_leases.check_not_held(connection, row, "become available again")
        if status in {"available", "in-use"}:
            attachments = _drop_unverified(connection, row, attachments)
        held = [AttachmentState(item["state"]) for item in attachments]
        derived = states.derive(state, held, row["pending_detaches"])
        _check_requested("status", status, derived.status, attachments)
        _check_requested("attach_status", attach_status, derived.attach_status, attachments)
        if status:
            if row["state"] in _NOT_MANAGED:
                raise exception.InvalidTransition(
                    kind="Volume", id=volume_id, source=row["state"], event="be reset; unmanage it"
                )
            values: dict[str, Any] = {"owner": None, "new_size_gib": None}
            if state is VolumeState.READY:
                values["error"] = None
            _end_pending(connection, row)
            _update_state(connection, row, state, attachments, values)
    return row


def _end_pending(connection: sa.Connection, row: VolumeRow) -> None:
    """End what depends on a volume's state, before a reset."""
    if row["state"] == VolumeState.REVERTING:
        snapshot_rules.end_revert(connection, row["id"])
    if row["state"] == VolumeState.AWAITING_TRANSFER:
        of_volume = models.volume_transfers.c.volume_id == row["id"]
        connection.execute(sa.delete(models.volume_transfers).where(of_volume))


def _drop_unverified(
    connection: sa.Connection, row: VolumeRow, attachments: Sequence[AttachmentRow]
) -> list[AttachmentRow]:
    """Drop what no backend confirms: holds, and detaches that were only begun."""
    row["pending_detaches"] = 0
    held = _ATTACHMENTS.c.state == AttachmentState.HELD
    connection.execute(sa.delete(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id == row["id"], held))
    return [item for item in attachments if item["state"] != AttachmentState.HELD]


def _check_requested(
    name: str, requested: str | None, actual: str, attachments: Sequence[AttachmentRow]
) -> None:
    if requested in {None, actual}:
        return
    holders = (
        f"attachments: {attachment_rows.describe_all(attachments)}"
        if attachments
        else "no attachment"
    )
    raise exception.BadRequest(
        reason=f"The volume's {name} cannot be {requested}: it has {holders}, "
        f"which makes it {actual}. Change the attachments instead."
    )


@retried
def list_recoverable(backend: str, holder: str) -> list[RecoverableVolumeRow]:
    """Return the volumes that a manager of ``host@backend`` has work to do on, oldest first.

    :param holder: the process that is going to do it; volumes on which another living process
        works are left out
    """
    statement = (
        sa.select(_VOLUMES, volume_leases.is_orphaned(holder).label("orphaned"))
        .where(
            _VOLUMES.c.owner == backend,
            _VOLUMES.c.state.in_(_RECOVERABLE),
            volume_leases.is_free(holder),
        )
        .order_by(_VOLUMES.c.created_at, _VOLUMES.c.id)
    )
    return session.fetch_all(statement, RecoverableVolumeRow)


_VOLUME_METADATA = models.volume_metadata
_VOLUME_IMAGE_METADATA = models.volume_image_metadata
_VOLUME_TYPES = models.volume_types

WITH_TYPE: Final[sa.Select[Any]] = sa.select(
    _VOLUMES, _VOLUME_TYPES.c.name.label("volume_type_name")
).outerjoin(_VOLUME_TYPES, _VOLUME_TYPES.c.id == _VOLUMES.c.volume_type_id)
"""Volumes with the names of their types."""

_WITH_METADATA = (
    WITH_TYPE.add_columns(_VOLUME_METADATA.c.key, _VOLUME_METADATA.c.value)
    .outerjoin(_VOLUME_METADATA, _VOLUME_METADATA.c.volume_id == _VOLUMES.c.id)
    .where(_VOLUMES.c.id == sa.bindparam("match_id"))
)
_GET: Final = CompiledSelect(_WITH_METADATA, VolumeWithMetadataRow)
"""One volume, once for each pair of its metadata."""
_GET_FOR_DRIVER: Final = CompiledSelect(
    _WITH_METADATA.add_columns(*statements.TYPE_COLUMNS), DriverVolumeRow
)
_GET_IN_PROJECT: Final = CompiledSelect(
    _WITH_METADATA.where(_VOLUMES.c.project_id == sa.bindparam("match_project")),
    VolumeWithMetadataRow,
)


@retried
def create(
    values: Mapping[str, Any],
    metadata: Mapping[str, str],
    first: session.Precondition | None = None,
) -> VolumeWithMetadataRow:
    """Store a volume that its backend, ``values["host"]``, is still to create.

    :param values: columns; ``state`` may differ from ``creating``. Beside them ``type_specs``, the
        extra specs of its type by which they were chosen, and ``image_metadata``, of its image;
        none if absent
    :param first: executed first in the transaction, for a request with an idempotency key
    :returns: the row, as of :func:`get`
    :raises VolumeTypeNotFound: its type has just been deleted
    :raises Conflict: the extra specs of its type have just been changed
    :raises QuotaExceeded: its project has not enough quota
    :raises VolumeNotFound: its source, ``source_volid``, does not exist any more
    :raises InvalidVolume: its source cannot be cloned
    :raises SnapshotNotFound, InvalidSnapshot: no volume can be made of ``snapshot_id`` now
    """
    row = new_row(values)
    with session.writer() as connection:
        if first is not None:
            first(connection)
        quotas.lock_project(connection, row["project_id"])
        if row["volume_type_id"]:
            type_store.lock_unchanged(
                connection, row["volume_type_id"], values.get("type_specs") or {}
            )
        claim = quotas.deltas_of_create(row["volume_type_id"], row["size_gib"])
        quotas.enforce(connection, row["project_id"], claim)
        source = _lock_source(connection, row)
        connection.execute(sa.insert(_VOLUMES).values(row))
        if source:
            target = metadata_pairs.Pairs(_VOLUME_IMAGE_METADATA.c.volume_id, row["id"])
            metadata_pairs.copy(connection, source, target)
        metadata_pairs.insert(connection, _VOLUME_METADATA, {"volume_id": row["id"]}, metadata)
        image_metadata = values.get("image_metadata") or {}
        metadata_pairs.check(f"Volume {row['id']}", image_metadata)
        owner = {"volume_id": row["id"]}
        metadata_pairs.insert(connection, _VOLUME_IMAGE_METADATA, owner, image_metadata)
    return {
        **row,
        "metadata": dict(metadata),
        "volume_type_name": values.get("volume_type_name"),
    }


def new_row(values: Mapping[str, Any]) -> VolumeRow:
    """Return the row of a volume that its backend, ``values["host"]``, is still to create.

    :param values: as of :func:`create`
    """
    own = {key: value for key, value in values.items() if key in _VOLUMES.c}
    state = VolumeState(own.get("state", VolumeState.CREATING))
    new: Any = {column.name: None for column in _VOLUMES.c} | {
        "multiattach": False,
        "shared_targets": True,  # unless its backend reports otherwise
        "bootable": False,
        "pending_detaches": 0,
        "lease_generation": 0,
        "provider": {},
        "admin_metadata": {},
        "id": models.new_id(),
        "created_at": models.now(),
        **own,
        "state": state.value,
        **states.derive(state, ())._asdict(),
    }
    row: VolumeRow = new
    row["backend_host"] = models.backend_of(row["host"])
    row["owner"] = row["backend_host"] if state in IN_PROGRESS else None
    return row


def _lock_source(connection: sa.Connection, row: VolumeRow) -> metadata_pairs.Pairs | None:
    """Lock what a volume gets its data from, and check it.

    :returns: the image metadata of the snapshot, or of the source of a clone; None: it has none
    """
    if snapshot_id := row["snapshot_id"]:
        snapshot_rules.check_source(connection, snapshot_id, row["size_gib"])
        return metadata_pairs.Pairs(models.snapshot_image_metadata.c.snapshot_id, snapshot_id)
    if source_id := row["source_volid"]:
        clone_source.check_source(connection, source_id, row["size_gib"])
        return metadata_pairs.Pairs(_VOLUME_IMAGE_METADATA.c.volume_id, source_id)
    return None

# SPDX-License-Identifier: Apache-2.0
"""Updates of a volume's row without its backend, each under the volume's lock."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import sqlalchemy as sa

from attachd import exception, multiattach
from attachd.db import models, quotas
from attachd.db.attachments import attachment_rows
from attachd.db.attachments.connect_rules import READONLY
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import VolumeRow
from attachd.db.types import type_store
from attachd.db.volumes import clone_source, snapshot_rules, volume_metadata, volume_store
from attachd.states import Event, VolumeState

_VOLUMES = models.volumes
_SNAPSHOTS = models.snapshots


class RetypeRequest(NamedTuple):
    """Another type for a volume, and its consequences.

    :ivar before: the type that it had when the request was checked
    :ivar type_specs: the extra specs of the other type by which it was checked
    :ivar statuses: those in which the retype may happen
    """

    before: str | None
    volume_type_id: str
    type_specs: Mapping[str, str | None]
    statuses: Collection[str]


@retried
def retype(volume_id: str, project_id: str, request: RetypeRequest) -> None:
    """Store another type of a volume, and its consequences, in one transaction.

    Snapshots that have stayed in another project, when the volume was transferred, keep the type
    by which they count there.

    :raises VolumeNotFound: there is none
    :raises VolumeTypeNotFound: the type has just been deleted
    :raises Conflict: the extra specs of the type have just been changed
    :raises InvalidVolume: it has another status, or has got a third type meanwhile
    :raises QuotaExceeded: the project has not enough quota for the type
    """
    values = {
        "volume_type_id": request.volume_type_id,
        "multiattach": multiattach.parse(request.type_specs).multiattach,
    }
    with session.writer() as connection:
        quotas.lock_project(connection, project_id)
        type_store.lock_unchanged(connection, request.volume_type_id, request.type_specs)
        row = volume_store.lock(connection, volume_id, project_id)
        if row["state"] != VolumeState.READY or row["status"] not in request.statuses:
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} status must be {' or '.join(request.statuses)} "
                f"to retype, currently {row['status']}."
            )
        if row["volume_type_id"] != request.before:
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} has got another type meanwhile."
            )
        counted = quotas.count_snapshots(connection, volume_id, project_id)
        claim = quotas.deltas_of_retype(request.volume_type_id, row["size_gib"], counted)
        quotas.enforce(connection, project_id, claim)
        changed = sa.update(_VOLUMES).where(_VOLUMES.c.id == volume_id)
        connection.execute(changed.values(**values, updated_at=models.now()))
        of_volume = (_SNAPSHOTS.c.volume_id == volume_id, _SNAPSHOTS.c.project_id == project_id)
        connection.execute(
            sa.update(_SNAPSHOTS)
            .where(*of_volume)
            .values(volume_type_id=request.volume_type_id, updated_at=_SNAPSHOTS.c.updated_at)
        )


@retried
def begin_reimage(
    volume_id: str,
    image_id: str,
    pairs: Mapping[str, str],
    statuses: Collection[str],
    project_id: str | None = None,
) -> VolumeRow:
    """Take a volume to the state in which its backend writes another image to it.

    :param pairs: of the image, which the volume has from now on
    :param statuses: those in which it is allowed
    :param project_id: as of volume_store.lock()
    :returns: the row after it
    :raises VolumeNotFound: there is none
    :raises Conflict: it has several attachments
    :raises InvalidTransition: its status does not allow it
    :raises InvalidVolume: it has snapshots, or is being cloned
    """

    def change(connection: sa.Connection, _id: str) -> None:
        if len(attachment_rows.visible(attachment_rows.list_holding(connection, _id))) > 1:
            raise exception.Conflict(
                reason="Cannot re-image a volume which is attached to more than one server."
            )
        snapshot_rules.check_no_snapshots(connection, _id)
        clone_source.check_no_pending_clone(connection, _id)
        volume_metadata.replace_image_metadata(connection, _id, pairs)

    values = {"image_id": image_id, "bootable": True, "error": None}
    return volume_store.transition(
        *(volume_id, Event.REIMAGE, values),
        last=change,
        statuses=statuses,
        project_id=project_id,
    )


@retried
def set_writable(volume_id: str) -> None:
    """Let later attachments write to a volume; see :func:`set_read_only`."""
    _set_readonly_flag(volume_id, "False")


@retried
def set_read_only(volume_id: str) -> None:
    """Let later attachments only read a volume.

    :raises VolumeNotFound: there is none
    :raises InvalidVolume: it is not available
    """
    _set_readonly_flag(volume_id, "True")


def _set_readonly_flag(volume_id: str, text: str) -> None:
    with session.writer() as connection:
        row = volume_store.lock(connection, volume_id)
        if (row["state"], row["status"]) != (VolumeState.READY, "available"):
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} status must be available to update readonly flag, "
                f"but current status is: {row['status']}."
            )
        admin_metadata = {**row["admin_metadata"], READONLY: text}
        connection.execute(
            sa.update(_VOLUMES)
            .where(_VOLUMES.c.id == volume_id)
            .values(admin_metadata=admin_metadata)
        )


@retried
def fail_upload(volume_id: str, image_id: str, error: str) -> bool:
    """Store why an upload fails, before its image is deleted: from now on no data is sent to it.

    :returns: False: the volume is not uploaded to this image any more
    """
    uploaded = sa.update(_VOLUMES).where(*_is_uploaded(volume_id, image_id))
    # When it was requested is still needed.
    values = {"error": models.truncate_error(error), "updated_at": _VOLUMES.c.updated_at}
    return session.write(uploaded.values(values)) == 1


@retried
def is_upload_expected(volume_id: str, image_id: str) -> bool:
    """Return whether a volume is, or is to be, uploaded to an image, and has not failed."""
    uploaded = (*_is_uploaded(volume_id, image_id), _VOLUMES.c.error.is_(None))
    return bool(session.fetch_all(sa.select(_VOLUMES.c.id).where(*uploaded)))


def _is_uploaded(volume_id: str, image_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _VOLUMES.c.id == volume_id,
        _VOLUMES.c.state == VolumeState.UPLOADING,
        _VOLUMES.c.upload_image_id == image_id,
    )


_FILLED: Final = (VolumeState.CREATING.value, VolumeState.DOWNLOADING.value)

PROGRESS: Final = "progress"
"""The key of a volume's admin_metadata with the per cent of it that are copied, as a text."""


@retried
def set_progress(volume_id: str, admin_metadata: Mapping[str, str], percent: int) -> None:
    """Store how much of a volume is copied, as long as it is being filled.

    :param admin_metadata: of the volume; nothing else changes it before the volume is filled
    """
    filled = sa.and_(_VOLUMES.c.id == volume_id, _VOLUMES.c.state.in_(_FILLED))
    values = {
        "admin_metadata": {**admin_metadata, PROGRESS: str(percent)},
        "updated_at": _VOLUMES.c.updated_at,
    }
    session.write(sa.update(_VOLUMES).where(filled).values(values))


def without_progress(admin_metadata: Mapping[str, str]) -> dict[str, str]:
    """Return administrative metadata as it is after a copy."""
    return {key: value for key, value in admin_metadata.items() if key != PROGRESS}


@retried
def set_shared_targets(backend: str, shared: bool | None) -> int:  # noqa: FBT001  a value, no choice
    """Store for all volumes of ``host@backend`` whether hosts have to take turns with them.

    :param shared: as drivers.Driver.SHARED_TARGETS
    :returns: the number of volumes whose value has changed
    """
    differs = _VOLUMES.c.shared_targets.is_distinct_from(shared)
    changed = sa.update(_VOLUMES).where(models.on_backend(backend), differs)
    # Only changes by users count as updates.
    values = {"shared_targets": shared, "updated_at": _VOLUMES.c.updated_at}
    return session.write(changed.values(values))

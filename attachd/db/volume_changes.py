# SPDX-License-Identifier: Apache-2.0
"""Changes of a volume's row that its backend need not hear of, each under the volume's lock."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from attachd import exception, multiattach
from attachd.db import api, models, quota_claims, quotas, types
from attachd.db.sharing_rules import READONLY
from attachd.states import VolumeState

Row = dict[str, Any]
_V = models.volumes


class Retype(NamedTuple):
    """Another type for a volume, and what follows from it.

    :ivar before: the type that it had when that was judged
    :ivar type_specs: the extra specs of the other type by which it was judged
    :ivar statuses: those in which it may happen
    """

    before: str | None
    volume_type_id: str
    type_specs: Mapping[str, str | None]
    statuses: Collection[str]


@api.retried
def retype(volume_id: str, project_id: str, wanted: Retype) -> None:
    """Give a volume another type, and all that follows from it, in one step.

    :raises VolumeNotFound: there is none
    :raises VolumeTypeNotFound: the type has just been deleted
    :raises Conflict: the type has just got other extra specs
    :raises InvalidVolume: it has another status, or got yet another type meanwhile
    :raises QuotaExceeded: the project may not have so much of the type
    """
    values = {
        "volume_type_id": wanted.volume_type_id,
        "multiattach": multiattach.parse(wanted.type_specs).multiattach,
    }
    with api.writer() as connection:
        quotas.lock(connection, project_id)
        types.keep(connection, wanted.volume_type_id, wanted.type_specs)
        row = _locked(connection, volume_id)
        if row["state"] != VolumeState.READY or row["status"] not in wanted.statuses:
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} status must be {' or '.join(wanted.statuses)} "
                f"to retype, currently {row['status']}."
            )
        if row["volume_type_id"] != wanted.before:
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} has got another type meanwhile."
            )
        claim = quota_claims.of_retype(wanted.volume_type_id, row["size_gib"])
        quota_claims.grant(connection, project_id, claim)
        changed = sa.update(_V).where(_V.c.id == volume_id)
        connection.execute(changed.values(**values, updated_at=models.now()))


@api.retried
def allow_writing(volume_id: str) -> None:
    """Let later attachments write to a volume; see :func:`forbid_writing`."""
    _set_readonly(volume_id, "False")


@api.retried
def forbid_writing(volume_id: str) -> None:
    """Let later attachments only read a volume.

    :raises VolumeNotFound: there is none
    :raises InvalidVolume: it is not available
    """
    _set_readonly(volume_id, "True")


def _set_readonly(volume_id: str, text: str) -> None:
    with api.writer() as connection:
        row = _locked(connection, volume_id)
        if (row["state"], row["status"]) != (VolumeState.READY, "available"):
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} status must be available to update readonly flag, "
                f"but current status is: {row['status']}."
            )
        told = {**row["admin_metadata"], READONLY: text}
        connection.execute(sa.update(_V).where(_V.c.id == volume_id).values(admin_metadata=told))


@api.retried
def set_shared_targets(backend: str, shared: bool | None) -> int:  # noqa: FBT001  a value, no choice
    """Store of all volumes of ``host@backend`` whether hosts have to take turns with them.

    :param shared: as drivers.Driver.SHARED_TARGETS
    :returns: of how many it was something else
    """
    differs = _V.c.shared_targets.is_distinct_from(shared)
    changed = sa.update(_V).where(models.served_by(backend), differs)
    # What users did to it is when it was updated.
    values = {"shared_targets": shared, "updated_at": _V.c.updated_at}
    with api.writer() as connection:
        return connection.execute(changed.values(values)).rowcount


def _locked(connection: sa.Connection, volume_id: str) -> Row:
    row = connection.execute(
        sa.select(_V).where(_V.c.id == volume_id).with_for_update()
    ).one_or_none()
    if row is None:
        raise exception.VolumeNotFound(volume_id=volume_id)
    return dict(row._mapping)

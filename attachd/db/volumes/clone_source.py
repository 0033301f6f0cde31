# SPDX-License-Identifier: Apache-2.0
"""Checks of the source of a clone, when the clone is created and when the source is removed.

A source is locked while its clone is stored, so that it is not being deleted: from then on the row
of the clone keeps it, until the clone has its data.
"""

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.states import VolumeState

_VOLUMES = models.volumes

CLONEABLE_STATUSES = ("available", "in-use")
"""The statuses of volumes that can be cloned."""


def check_source(connection: sa.Connection, source_id: str, size_gib: int) -> None:
    """Lock the source of a volume that is about to be stored, and check it.

    :param size_gib: of the new volume
    :raises VolumeNotFound: the source does not exist any more
    :raises InvalidVolume: it is in no state to be cloned, or has become larger than its clone
    """
    statement = sa.select(_VOLUMES.c.status, _VOLUMES.c.size_gib).where(_VOLUMES.c.id == source_id)
    source = connection.execute(statement.with_for_update()).one_or_none()
    if source is None:
        raise exception.VolumeNotFound(volume_id=source_id)
    if source.status not in CLONEABLE_STATUSES:
        raise not_cloneable(source_id, source.status)
    if source.size_gib > size_gib:
        raise exception.InvalidVolume(
            reason=f"Volume {source_id} has grown to {source.size_gib} GiB meanwhile."
        )


def not_cloneable(volume_id: str, status: str) -> exception.InvalidVolume:
    """Return the error for a volume that cannot be cloned in its status."""
    return exception.InvalidVolume(
        reason=f"Volume {volume_id} status must be {' or '.join(CLONEABLE_STATUSES)} to be "
        f"copied, currently {status}."
    )


def check_no_pending_clone(connection: sa.Connection, volume_id: str) -> None:
    """Check that a volume, whose row is locked, may be removed, or may lose its data or project.

    :raises InvalidVolume: it is being cloned
    """
    waiting = sa.select(_VOLUMES.c.id).where(
        _VOLUMES.c.source_volid == volume_id, _VOLUMES.c.state == VolumeState.CREATING
    )
    copy = connection.execute(waiting.limit(1)).scalar_one_or_none()
    if copy is not None:
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} cannot be removed, reverted, transferred or get "
            f"another image while it is copied to volume {copy}."
        )

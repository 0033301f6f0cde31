# SPDX-License-Identifier: Apache-2.0
"""What volumes that are copied of others need of those, where those are made and go.

A source is locked while its copy is stored, so that it cannot be on its way out: from then on it
is kept by the row of the copy, until that has its data.
"""

from typing import Any

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.states import VolumeState

Row = dict[str, Any]
_VOLUMES = models.volumes
_VOLUME_IMAGE_METADATA = models.volume_image_metadata

CLONEABLE_STATUSES = ("available", "in-use")
"""The statuses of volumes that can be copied."""


def check_source(connection: sa.Connection, copy: Row) -> None:
    """Lock the source of a volume that is about to be stored.

    :param copy: the new row
    :raises VolumeNotFound: the source is gone
    :raises InvalidVolume: it is in no state to be copied, or has grown beyond its copy
    """
    statement = sa.select(_VOLUMES.c.status, _VOLUMES.c.size_gib).where(
        _VOLUMES.c.id == copy["source_volid"]
    )
    source = connection.execute(statement.with_for_update()).one_or_none()
    if source is None:
        raise exception.VolumeNotFound(volume_id=copy["source_volid"])
    if source.status not in CLONEABLE_STATUSES:
        raise not_cloneable(copy["source_volid"], source.status)
    if source.size_gib > copy["size_gib"]:
        raise exception.InvalidVolume(
            reason=f"Volume {copy['source_volid']} has grown to {source.size_gib} GiB meanwhile."
        )


def not_cloneable(volume_id: str, status: str) -> exception.InvalidVolume:
    """Say that a volume cannot be copied as it is."""
    return exception.InvalidVolume(
        reason=f"Volume {volume_id} status must be {' or '.join(CLONEABLE_STATUSES)} to be "
        f"copied, currently {status}."
    )


def copy_image_metadata(connection: sa.Connection, copy: Row) -> None:
    """Give a volume that has just been stored what is known of the image on its source."""
    of_source = sa.select(
        sa.literal(copy["id"]), _VOLUME_IMAGE_METADATA.c.key, _VOLUME_IMAGE_METADATA.c.value
    )
    connection.execute(
        sa.insert(_VOLUME_IMAGE_METADATA).from_select(
            ["volume_id", "key", "value"],
            of_source.where(_VOLUME_IMAGE_METADATA.c.volume_id == copy["source_volid"]),
        )
    )


def check_no_pending_clone(connection: sa.Connection, volume_id: str) -> None:
    """Let a volume be deleted, whose row is locked.

    :raises InvalidVolume: a copy of it is being made
    """
    waiting = sa.select(_VOLUMES.c.id).where(
        _VOLUMES.c.source_volid == volume_id, _VOLUMES.c.state == VolumeState.CREATING
    )
    copy = connection.execute(waiting.limit(1)).scalar_one_or_none()
    if copy is not None:
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} cannot be deleted while it is copied to volume {copy}."
        )

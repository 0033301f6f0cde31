# SPDX-License-Identifier: Apache-2.0
"""The volume_image_metadata table: what is known of the image on a volume; used by the API."""

from collections.abc import Mapping

import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models, volume_metadata

Pairs = dict[str, str]
_T = models.volume_image_metadata


@api.retried
def get(volume_id: str) -> Pairs:
    """Return all pairs; none where there is no such volume."""
    wanted = sa.select(_T.c.key, _T.c.value).where(_T.c.volume_id == volume_id)
    with api.reader() as connection:
        return {row.key: row.value for row in connection.execute(wanted)}


@api.retried
def merge(volume_id: str, pairs: Mapping[str, str]) -> Pairs:
    """Set some pairs, keep the others, and return all.

    :raises VolumeNotFound: there is no such volume
    """
    with api.writer() as connection:
        before = volume_metadata.locked(connection, _T, volume_id)
        after = {**before, **pairs}
        return volume_metadata.stored(connection, _T, volume_id, before, after)


@api.retried
def delete(volume_id: str, key: str) -> None:
    """Remove one pair.

    :raises NotFound: there is none, or no such volume
    """
    with api.writer() as connection:
        if key not in volume_metadata.locked(connection, _T, volume_id):
            raise exception.NotFound(f"Volume {volume_id} has no image metadata with key {key}.")
        volume_metadata.removed(connection, _T, volume_id, key)

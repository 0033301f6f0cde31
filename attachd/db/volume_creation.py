# SPDX-License-Identifier: Apache-2.0
"""New rows of the volumes table; used by the objects."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from attachd import states
from attachd.db import api, copies, models, quota_claims, quotas, types
from attachd.db.volumes import OWNED
from attachd.states import VolumeState

Row = dict[str, Any]
_V = models.volumes
_M = models.volume_metadata


@api.retried
def insert(
    values: Mapping[str, Any], metadata: Mapping[str, str], first: api.First | None = None
) -> Row:
    """Store a volume that its backend, ``values["host"]``, is still to create.

    :param values: columns; ``state`` may be another one than ``creating``.  Beside them
        ``type_specs``, the extra specs of its type by which they were chosen; none if absent
    :param first: what the transaction does first, for a request with a key
    :returns: the row, as of volumes.get()
    :raises VolumeTypeNotFound: its type has just been deleted
    :raises Conflict: its type has just got other extra specs
    :raises QuotaExceeded: its project may not have it
    :raises VolumeNotFound: the volume that it is to be a copy of, ``source_volid``, is gone
    :raises InvalidVolume: that volume cannot be copied
    """
    own = {key: value for key, value in values.items() if key in _V.c}
    state = VolumeState(own.get("state", VolumeState.CREATING))
    row: Row = {column.name: None for column in _V.c} | {
        "multiattach": False,
        "shared_targets": True,  # unless its backend says otherwise
        "bootable": False,
        "leaving": 0,
        "lease_generation": 0,
        "provider": {},
        "admin_metadata": {},
        "id": models.new_id(),
        "created_at": models.now(),
        **own,
        "state": state.value,
        **states.derive(state, ())._asdict(),
    }
    row["owner"] = models.backend_of(row["host"]) if state in OWNED else None
    with api.writer() as connection:
        if first is not None:
            first(connection)
        quotas.lock(connection, row["project_id"])
        if row["volume_type_id"]:
            types.keep(connection, row["volume_type_id"], values.get("type_specs") or {})
        claim = quota_claims.of_new_volume(row["volume_type_id"], row["size_gib"])
        quota_claims.grant(connection, row["project_id"], claim)
        if row["source_volid"]:
            copies.check_source(connection, row)
        connection.execute(sa.insert(_V).values(row))
        if row["source_volid"]:
            copies.add_image_metadata(connection, row)
        if metadata:
            pairs = [_pair(row["id"], *pair) for pair in metadata.items()]
            connection.execute(sa.insert(_M), pairs)
    return {**row, "metadata": dict(metadata), "volume_type_name": values.get("volume_type_name")}


def _pair(volume_id: str, key: str, value: str) -> Row:
    return {"volume_id": volume_id, "key": key, "value": value}

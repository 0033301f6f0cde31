# SPDX-License-Identifier: Apache-2.0
"""The snapshot of which a new volume is made."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attachd import exception
from attachd.api.snapshots import load, policy
from attachd.context import RequestContext
from attachd.db.volumes import snapshot_rules
from attachd.states import SnapshotState


class SnapshotSource(NamedTuple):
    """What a new volume takes from a snapshot, by the names of Volume.

    The volume of the snapshot may belong to another project by now: only its place counts.
    """

    id: str
    size_gib: int
    volume_type_id: str | None
    host: str | None
    availability_zone: str | None
    bootable: bool


def requested_snapshot(ctx: RequestContext, requested: Mapping[str, Any]) -> SnapshotSource | None:
    """Return the snapshot of a request to create a volume.

    :raises SnapshotNotFound: the caller's project has none
    :raises InvalidSnapshot: its state does not allow it
    :raises BadRequest: another source is requested as well
    """
    if not requested.get("snapshot_id"):
        return None
    row = load.get(ctx, requested["snapshot_id"], policy.GET)
    others = [name for name in ("source_volid", "imageRef", "image_id") if requested.get(name)]
    if others:
        raise exception.BadRequest(
            reason=f"A volume gets its data of one source: leave out snapshot_id or {others[0]}."
        )
    if row["state"] != SnapshotState.AVAILABLE:
        raise snapshot_rules.not_usable(row["id"], row["state"])
    return SnapshotSource(
        row["id"],
        row["size_gib"],
        row["volume_type_id"],
        row["volume_host"],
        row["availability_zone"],
        row["bootable"],
    )

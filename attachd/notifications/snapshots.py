# SPDX-License-Identifier: Apache-2.0
"""Notifications about snapshots: the Block Storage service's snapshot.* events, and payload."""

from collections.abc import Mapping
import functools
from typing import Any

from attachd.conf import CONF
from attachd.db.row_types import SnapshotRow, SnapshotWithVolumeRow
from attachd.notifications import sender


def snapshot(
    event: str,
    row: SnapshotRow | SnapshotWithVolumeRow,
    availability_zone: str | None,
    *,
    host: str | None = None,
    **more: Any,
) -> None:
    """Notify that an operation on a snapshot starts or ends.

    :param event: what follows "snapshot.", such as "create.start"
    :param row: as it is at this moment
    :param availability_zone: of its volume
    :param host: publisher, such as ``host@backend``; None: [DEFAULT]host
    :param more: fields of the payload that differ
    """
    if sender.enabled():
        sender.send(
            sender.Event(
                f"snapshot.{event}",
                row["id"],
                f"snapshot.{host or CONF.host}",
                functools.partial(_payload, {**row}, availability_zone, more),
            )
        )


def _payload(
    row: Mapping[str, Any], availability_zone: str | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "tenant_id": row["project_id"],
        "user_id": row["user_id"],
        "availability_zone": availability_zone,
        "volume_id": row["volume_id"],
        "volume_size": row["size_gib"],
        "snapshot_id": row["id"],
        "display_name": row["name"],
        "created_at": f"{row['created_at'].isoformat()}+00:00",
        "status": row["state"],
        "deleted": "",
        "metadata": str(row.get("metadata") or {}),
        **more,
    }

# SPDX-License-Identifier: Apache-2.0
"""Volumes as responses show them."""

from collections.abc import Iterable
from typing import Final

from attachd.csi import csi_pb2, new_volume
from attachd.platforms.storage import GIB, StoredAttachment, StoredVolume

_ABNORMAL: Final = frozenset({"degraded", "failed"})


def show(volume: StoredVolume) -> csi_pb2.Volume:
    """Return a volume without its topology."""
    return csi_pb2.Volume(
        volume_id=volume.id,
        capacity_bytes=volume.size_gib * GIB,
        volume_context=new_volume.context_of(volume),
        content_source=new_volume.source_of(volume),
    )


def show_with_topology(volume: StoredVolume) -> csi_pb2.Volume:
    """Return a volume with its zone."""
    shown = show(volume)
    if volume.zone:
        shown.accessible_topology.add(segments={new_volume.ZONE: volume.zone})
    return shown


def list_nodes(attachments: Iterable[StoredAttachment]) -> list[str]:
    """Return the nodes where a volume is published, or may be."""
    return sorted({item.node for item in attachments if item.node and item.status != "reserved"})


def show_condition(
    volume: StoredVolume, attachments: Iterable[StoredAttachment]
) -> csi_pb2.VolumeCondition:
    """Return the condition of a volume: its own status, and what its nodes report."""
    problems = [f"Volume {volume.id} is in status {volume.status}."]
    if not volume.status.startswith("error"):
        problems.clear()
    for item in attachments:
        condition = item.condition
        if condition is not None and condition["state"] in _ABNORMAL:
            problems.append(f"Node {item.host}: {condition['message']}")
    return csi_pb2.VolumeCondition(
        abnormal=bool(problems), message=" ".join(problems) or f"Volume {volume.status}."
    )

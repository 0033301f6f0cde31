# SPDX-License-Identifier: Apache-2.0
"""Volumes that the caller may act on, and the rows shown with them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from attachd import exception
from attachd.context import RequestContext
from attachd.db.attachments import attachment_queries
from attachd.db.row_types import AttachmentRow, ListedVolumeRow
from attachd.db.volumes import volume_metadata
from attachd.objects import Volume


def get(ctx: RequestContext, volume_id: str, rule: str) -> Volume:
    """Load one volume.

    :param rule: the policy rule that must allow the caller to act on it
    :raises VolumeNotFound: the caller's project has none
    :raises Forbidden: the rule denies it
    """
    volume = Volume.get(ctx, volume_id)
    ctx.authorize(rule, volume)
    return volume


def get_writable(ctx: RequestContext, volume_id: str, rule: str) -> Volume:
    """Load a volume whose description may be changed; see :func:`get`.

    :raises InvalidVolume: it is in maintenance
    """
    volume = get(ctx, volume_id, rule)
    if volume.status == "maintenance":
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} cannot be changed while its status is maintenance."
        )
    return volume


def attachments(volume: Volume) -> list[AttachmentRow]:
    """Return the rows of a volume's attachments, without secrets."""
    return attachment_queries.list_of_volumes([volume.id])[volume.id]


def from_rows(ctx: RequestContext, rows: Iterable[ListedVolumeRow]) -> list[Volume]:
    """Return the volumes of a page of rows."""
    return [Volume.from_row(ctx, row) for row in rows]


def from_rows_with_counts(
    ctx: RequestContext, rows: Iterable[ListedVolumeRow]
) -> list[tuple[Volume, int]]:
    """Return volumes and how many attachments of each are attached: one statement."""
    volumes = from_rows(ctx, rows)
    counts = attachment_queries.count_attached([item.id for item in volumes])
    return [(item, counts[item.id]) for item in volumes]


class VolumeData(NamedTuple):
    """A volume and what is shown with it.

    :ivar attachments: their rows, without secrets, oldest first
    """

    volume: Volume
    attachments: list[AttachmentRow]
    image_metadata: Mapping[str, str]


def with_details(volume: Volume) -> VolumeData:
    """Add what is shown with a volume: two statements."""
    return VolumeData(volume, attachments(volume), volume_metadata.get_image_metadata(volume.id))


def from_rows_with_details(
    ctx: RequestContext, rows: Iterable[ListedVolumeRow]
) -> list[VolumeData]:
    """Return volumes with what is shown with them: one statement."""
    pairs = [(Volume.from_row(ctx, row), row["image_metadata"]) for row in rows]
    attachments_by_volume = attachment_queries.list_of_volumes([item.id for item, _image in pairs])
    return [VolumeData(item, attachments_by_volume[item.id], image) for item, image in pairs]

# SPDX-License-Identifier: Apache-2.0
"""Loads volumes that the caller may act on; used by the handlers of volumes and actions."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from attachd import exception
from attachd.context import RequestContext
from attachd.db import attachment_queries, image_metadata
from attachd.objects import Volume

Row = Mapping[str, Any]


def volume(ctx: RequestContext, volume_id: str, rule: str) -> Volume:
    """Load one volume.

    :param rule: which must allow the caller to act on it
    :raises VolumeNotFound: there is none in the caller's project
    :raises Forbidden: the rule does not
    """
    found = Volume.get(ctx, volume_id)
    ctx.authorize(rule, found)
    return found


def writable(ctx: RequestContext, volume_id: str, rule: str) -> Volume:
    """Load a volume whose description may be changed; see :func:`volume`.

    :raises InvalidVolume: it is in maintenance
    """
    found = volume(ctx, volume_id, rule)
    if found.status == "maintenance":
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} cannot be changed while its status is maintenance."
        )
    return found


def attachments(one: Volume) -> list[dict[str, Any]]:
    """Return the rows of a volume's attachments, without secrets."""
    return attachment_queries.brief_of_volumes([one.id])[one.id]


def from_rows(ctx: RequestContext, rows: Iterable[Row]) -> list[Volume]:
    """Turn the rows of a page into volumes."""
    return [Volume.from_row(ctx, row) for row in rows]


def from_rows_with_counts(ctx: RequestContext, rows: Iterable[Row]) -> list[tuple[Volume, int]]:
    """Turn the rows of a page into volumes and how often each is attached: one statement."""
    volumes = from_rows(ctx, rows)
    counts = attachment_queries.count_attached([each.id for each in volumes])
    return [(each, counts[each.id]) for each in volumes]


class VolumeData(NamedTuple):
    """A volume and what is shown with it.

    :ivar attachments: their rows, without secrets, oldest first
    """

    volume: Volume
    attachments: list[dict[str, Any]]
    image_metadata: Mapping[str, str]


def with_details(one: Volume) -> VolumeData:
    """Add what is shown with a volume: two statements."""
    return VolumeData(one, attachments(one), image_metadata.get(one.id))


def from_rows_with_details(ctx: RequestContext, rows: Iterable[Row]) -> list[VolumeData]:
    """Turn the rows of a page into volumes and what is shown with them: one statement."""
    pairs = [(Volume.from_row(ctx, row), row["image_metadata"]) for row in rows]
    held = attachment_queries.brief_of_volumes([each.id for each, _image in pairs])
    return [VolumeData(each, held[each.id], image) for each, image in pairs]

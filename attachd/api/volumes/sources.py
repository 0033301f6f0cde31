# SPDX-License-Identifier: Apache-2.0
"""What a new volume has of the volume that it is to be a copy of; used by wishes.py.

Each function also takes None for the source, of a volume that begins empty.
"""

from collections.abc import Mapping
from typing import Any

from attachd import exception, scheduler
from attachd.api.types import lookup
from attachd.api.volumes import load, policy
from attachd.context import RequestContext
from attachd.db import copies, types
from attachd.objects import Volume

Wish = Mapping[str, Any]


def source_of(ctx: RequestContext, wanted: Wish) -> Volume | None:
    """Return the volume that is to be copied.

    :raises VolumeNotFound: there is none in the caller's project
    :raises InvalidVolume: it is in no state to be copied
    """
    if not wanted.get("source_volid"):
        return None
    source = load.volume(ctx, wanted["source_volid"], policy.GET)
    if source.status not in copies.COPIED_WHILE:
        raise copies.not_copied(source.id, source.status)
    return source


def kind(ctx: RequestContext, wanted: Wish, source: Volume | None) -> lookup.Row | None:
    """Return the type that is asked for, or that of the source, or the default.

    :raises VolumeTypeNotFound: there is no such type for the caller
    """
    name = wanted.get("volume_type")
    if name:
        return lookup.by_id_or_name(ctx, name)
    if source is None:
        return lookup.default(ctx)
    # Whoever has the source has its type, even where it has become private since.
    return types.get(source.volume_type_id) if source.volume_type_id else None


def size(wanted: Wish, source: Volume | None) -> int:
    """Return the size in GiB that is asked for, or that of the source.

    :raises InvalidInput: there is none, or the source does not fit into it
    """
    asked = wanted.get("size")
    if asked is not None:
        gib = int(asked)
        if source is not None and gib < source.size_gib:
            raise exception.InvalidInput(
                field="volume.size",
                value=gib,
                reason=f"A copy of volume {source.id} has at least its {source.size_gib} GiB.",
            )
        return gib
    if source is None:
        raise exception.InvalidInput(
            field="volume.size", value=None, reason="A size in GiB is needed, 1 or more."
        )
    return int(source.size_gib)


def place(
    source: Volume | None, size_gib: int, specs: Mapping[str, str | None], zone: str | None = None
) -> scheduler.Destination:
    """Return the best place, or that of the source: its backend copies it.

    :param specs: the extra specs of the new volume's type
    :param zone: None if any will do
    :raises InvalidInput: another zone than that of the source is asked for
    :raises NoBackendFits: with the reason
    """
    wanted = scheduler.RequestSpec(size_gib, specs, zone)
    if source is None:
        return scheduler.choose(wanted)
    if zone not in {None, source.availability_zone}:
        raise exception.InvalidInput(
            field="volume.availability_zone",
            value=zone,
            reason=f"A copy of volume {source.id} is where that is: in "
            f"{source.availability_zone}.",
        )
    return scheduler.select_on_host(source.host, wanted)

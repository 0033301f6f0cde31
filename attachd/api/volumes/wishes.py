# SPDX-License-Identifier: Apache-2.0
"""Turns what callers want of a volume into what is stored; used by the handlers of volumes."""

from collections.abc import Mapping
from typing import Any

from attachd import exception, placement
from attachd.api import fields
from attachd.api.types import lookup
from attachd.api.volumes import policy, schema
from attachd.context import RequestContext

Wish = Mapping[str, Any]


def of_new_volume(ctx: RequestContext, wanted: Wish) -> dict[str, Any]:
    """Return the values of a new volume, its place among them.

    :param wanted: ``volume`` of the body, as its schema lets it through
    :raises BadRequest: it asks for what there is not, or what no backend has
    :raises VolumeTypeNotFound: there is no such type for the caller
    :raises Forbidden: its type is multiattach, which policy does not allow the caller
    """
    _refuse_what_is_not_here(wanted)
    kind = _type(ctx, wanted.get("volume_type"))
    specs = kind["extra_specs"] if kind else {}
    multiattach = placement.wants_multiattach(specs)
    if multiattach:
        ctx.authorize(policy.MULTIATTACH)
    size = _size(wanted)
    zone = wanted.get("availability_zone")
    place = placement.choose(placement.Wanted(size, specs, zone))
    return {
        **texts(wanted),
        "project_id": ctx.project_id,
        "user_id": ctx.user_id,
        "size_gib": size,
        "multiattach": multiattach,
        "volume_type_id": kind["id"] if kind else None,
        "volume_type_name": kind["name"] if kind else None,
        "metadata": wanted.get("metadata") or {},
        "host": place.host,
        "availability_zone": place.availability_zone,
    }


def texts(wanted: Wish) -> dict[str, str | None]:
    """Return name and description, as far as they are given by either of their names."""
    found = {}
    for name in ("name", "description"):
        for key in (f"display_{name}", name):
            if key in wanted:
                text = wanted[key]
                found[name] = text.strip() if text else text
    return found


def _refuse_what_is_not_here(wanted: Wish) -> None:
    for field, things in schema.REFUSED.items():
        if wanted.get(field):
            raise exception.BadRequest(
                reason=f"{field} is not supported: this service has no {things}. Leave it out."
            )
    if fields.truth("multiattach", wanted.get("multiattach") or False):
        raise exception.BadRequest(
            reason="multiattach parameter has been removed. A volume can be attached several "
            "times if its volume type says so: choose one with the extra spec "
            "multiattach='<is> True'."
        )


def _type(ctx: RequestContext, wanted: str | None) -> lookup.Row | None:
    return lookup.by_id_or_name(ctx, wanted) if wanted else lookup.default()


def _size(wanted: Wish) -> int:
    size = wanted.get("size")
    if size is None:
        raise exception.InvalidInput(
            field="volume.size", value=None, reason="A size in GiB is needed, 1 or more."
        )
    return int(size)

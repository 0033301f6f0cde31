# SPDX-License-Identifier: Apache-2.0
"""Turns what callers want of a volume into what is stored; used by the handlers of volumes."""

from collections.abc import Mapping
from typing import Any

from oslo_utils import uuidutils

from attachd import exception, multiattach
from attachd.api import fields
from attachd.api.quotas import claims
from attachd.api.types import sizes
from attachd.api.volumes import policy, schema, sources
from attachd.context import RequestContext
from attachd.db import quota_claims

Wish = Mapping[str, Any]


def of_new_volume(ctx: RequestContext, wanted: Wish) -> dict[str, Any]:
    """Return the values of a new volume, its place among them.

    :param wanted: ``volume`` of the body, as its schema lets it through
    :raises BadRequest: it asks for what there is not, or what no backend has
    :raises NotFound: it asks for a snapshot or the like by its id
    :raises VolumeTypeNotFound: there is no such type for the caller
    :raises Forbidden: its type is multiattach, which policy does not allow the caller
    :raises QuotaExceeded: no backend has it, and the caller's project may not have it either
    :raises VolumeNotFound: there is no such source for the caller
    """
    _refuse_what_is_not_here(wanted)
    source = sources.source_of(ctx, wanted)
    kind = sources.kind(ctx, wanted, source)
    specs = kind["extra_specs"] if kind else {}
    may_be_shared = multiattach.of(specs).multiattach
    if may_be_shared:
        ctx.authorize(policy.MULTIATTACH)
    size = sources.size(wanted, source)
    sizes.check(kind, size)
    zone = wanted.get("availability_zone")
    type_id = kind["id"] if kind else None
    with claims.told_first(str(ctx.project_id), quota_claims.of_new_volume(type_id, size)):
        place = sources.place(source, size, specs, zone)
    return {
        **texts(wanted),
        "project_id": ctx.project_id,
        "user_id": ctx.user_id,
        "size_gib": size,
        "multiattach": may_be_shared,
        "bootable": source is not None and bool(source.bootable),
        "source_volid": source.id if source else None,
        "volume_type_id": type_id,
        "volume_type_name": kind["name"] if kind else None,
        "type_specs": specs,
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
        if value := wanted.get(field):
            reason = f"{field} is not supported: this service has no {things}. Leave it out."
            if field in schema.FOUND_NOWHERE and uuidutils.is_uuid_like(value):
                raise exception.NotFound(reason)
            raise exception.BadRequest(reason=reason)
    if fields.truth("multiattach", wanted.get("multiattach") or False):
        raise exception.BadRequest(
            reason="multiattach parameter has been removed. A volume can be attached several "
            "times if its volume type says so: choose one with the extra spec "
            "multiattach='<is> True'."
        )

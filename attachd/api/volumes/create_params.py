# SPDX-License-Identifier: Apache-2.0
"""Turns what callers want of a volume into what is stored; used by the handlers of volumes."""

from collections.abc import Mapping
from typing import Any

from oslo_utils import uuidutils

from attachd import exception, multiattach, scheduler
from attachd.api import fields
from attachd.api.quotas import claims
from attachd.api.types import lookup, size_limits
from attachd.api.volumes import load, policy, schema
from attachd.context import RequestContext
from attachd.db import copies, quota_claims, types
from attachd.objects import Volume

CreateRequest = Mapping[str, Any]


def build(ctx: RequestContext, wanted: CreateRequest) -> dict[str, Any]:
    """Return the values of a new volume, its place among them.

    :param wanted: ``volume`` of the body, as its schema lets it through
    :raises BadRequest: it asks for what there is not, or what no backend has
    :raises NotFound: it asks for a snapshot or the like by its id
    :raises VolumeTypeNotFound: there is no such type for the caller
    :raises Forbidden: its type is multiattach, which policy does not allow the caller
    :raises QuotaExceeded: no backend has it, and the caller's project may not have it either
    :raises VolumeNotFound: there is no such source for the caller
    """
    _reject_unsupported(wanted)
    source = source_volume(ctx, wanted)
    kind = requested_type(ctx, wanted, source)
    specs = kind["extra_specs"] if kind else {}
    may_be_shared = multiattach.parse(specs).multiattach
    if may_be_shared:
        ctx.authorize(policy.MULTIATTACH)
    size = requested_size(wanted, source)
    size_limits.check(kind, size)
    zone = wanted.get("availability_zone")
    type_id = kind["id"] if kind else None
    with claims.quota_error_first(str(ctx.project_id), quota_claims.of_new_volume(type_id, size)):
        place = select_destination(source, size, specs, zone)
    return {
        **name_and_description(wanted),
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


def name_and_description(wanted: CreateRequest) -> dict[str, str | None]:
    """Return name and description, as far as they are given by either of their names."""
    found = {}
    for name in ("name", "description"):
        for key in (f"display_{name}", name):
            if key in wanted:
                text = wanted[key]
                found[name] = text.strip() if text else text
    return found


def _reject_unsupported(wanted: CreateRequest) -> None:
    for field, things in schema.REFUSED.items():
        if value := wanted.get(field):
            reason = f"{field} is not supported: this service has no {things}. Leave it out."
            if field in schema.FOUND_NOWHERE and uuidutils.is_uuid_like(value):
                raise exception.NotFound(reason)
            raise exception.BadRequest(reason=reason)
    if fields.parse_bool("multiattach", wanted.get("multiattach") or False):
        raise exception.BadRequest(
            reason="multiattach parameter has been removed. A volume can be attached several "
            "times if its volume type says so: choose one with the extra spec "
            "multiattach='<is> True'."
        )


def source_volume(ctx: RequestContext, wanted: CreateRequest) -> Volume | None:
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


def requested_type(
    ctx: RequestContext, wanted: CreateRequest, source: Volume | None
) -> lookup.Row | None:
    """Return the type that is asked for, or that of the source, or the default.

    :raises VolumeTypeNotFound: there is no such type for the caller
    """
    name = wanted.get("volume_type")
    if name:
        return lookup.get_by_id_or_name(ctx, name)
    if source is None:
        return lookup.default(ctx)
    # Whoever has the source has its type, even where it has become private since.
    return types.get(source.volume_type_id) if source.volume_type_id else None


def requested_size(wanted: CreateRequest, source: Volume | None) -> int:
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


def select_destination(
    source: Volume | None, size_gib: int, specs: Mapping[str, str | None], zone: str | None = None
) -> scheduler.Destination:
    """Return the best place, or that of the source: its backend copies it.

    :param specs: the extra specs of the new volume's type
    :param zone: None if any will do
    :raises InvalidInput: another zone than that of the source is asked for
    :raises NoValidBackend: with the reason
    """
    wanted = scheduler.RequestSpec(size_gib, specs, zone)
    if source is None:
        return scheduler.select_backend(wanted)
    if zone not in {None, source.availability_zone}:
        raise exception.InvalidInput(
            field="volume.availability_zone",
            value=zone,
            reason=f"A copy of volume {source.id} is where that is: in "
            f"{source.availability_zone}.",
        )
    return scheduler.select_on_host(source.host, wanted)

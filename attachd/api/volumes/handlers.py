# SPDX-License-Identifier: Apache-2.0
"""Volumes: create, look at, change, delete."""

from collections.abc import Mapping
import contextlib
from typing import Any

from attachd import exception, placement, rpcapi
from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api.endpoint import endpoint
from attachd.api.links import Links
from attachd.api.types import lookup

# Importing lists and metadata declares their endpoints.
from attachd.api.volumes import lists, metadata, policy, schema, view  # noqa: F401
from attachd.context import RequestContext
from attachd.db import attachment_queries, volume_metadata, volumes
from attachd.objects import Volume
from attachd.states import Event

ITEM = "/volumes/{volume_id}"

Body = dict[str, Any]


@endpoint("POST", "/volumes", policy=policy.CREATE, body=schema.CREATE, status=202)
def create(ctx: RequestContext, body: Body, version: mv.Version, links: Links) -> Body:
    """Store a volume at the backend that fits best, and have that make it."""
    wanted = body["volume"]
    _refuse_what_is_not_here(wanted)
    kind = _type(ctx, wanted.get("volume_type"))
    specs = kind["extra_specs"] if kind else {}
    multiattach = placement.wants_multiattach(specs)
    if multiattach:
        ctx.authorize(policy.MULTIATTACH)
    size = _size(wanted)
    place = placement.choose(
        placement.Wanted(size, specs, wanted.get("availability_zone") or None)
    )
    volume = Volume.create(
        ctx,
        {
            **_texts(wanted),
            "project_id": ctx.project_id,
            "user_id": ctx.user_id,
            "size_gib": size,
            "multiattach": multiattach,
            "volume_type_id": kind["id"] if kind else None,
            "volume_type_name": kind["name"] if kind else None,
            "metadata": wanted.get("metadata") or {},
            "host": place.host,
            "availability_zone": place.availability_zone,
        },
    )
    _have_made(ctx, volume)
    return {"volume": view.created(volume, view.Viewer.of(ctx, version, links))}


def _refuse_what_is_not_here(wanted: Mapping[str, Any]) -> None:
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


def _size(wanted: Mapping[str, Any]) -> int:
    size = wanted.get("size")
    if size is None:
        raise exception.InvalidInput(
            field="volume.size", value="None", reason="A size in GiB is needed, 1 or more."
        )
    return int(size)


def _texts(wanted: Mapping[str, Any]) -> dict[str, str | None]:
    """Return name and description, as far as they are given by either of their names."""
    texts = {}
    for name in ("name", "description"):
        for key in (f"display_{name}", name):
            if key in wanted:
                text = wanted[key]
                texts[name] = text.strip() if text else text
    return texts


def _have_made(ctx: RequestContext, volume: Volume) -> None:
    """Send the volume to its backend; its row tells if that could not be done."""
    try:
        rpcapi.create_volume(ctx, volume)
    except exception.AttachdError as error:
        with contextlib.suppress(exception.InvalidTransition, exception.NotFound):
            volume.fire(Event.CREATE_FAILED, error=str(error))
        raise exception.Unavailable(
            reason=f"Volume {volume.id} was not created and is in error: {error} Delete it."
        ) from error


@endpoint("GET", ITEM, policy=policy.GET)
def show(ctx: RequestContext, volume_id: str, version: mv.Version, links: Links) -> Body:
    """Answer one volume."""
    volume = Volume.get(ctx, volume_id)
    ctx.authorize(policy.GET, volume)
    attachments = attachment_queries.brief_of_volumes([volume.id])[volume.id]
    return {"volume": view.detail(volume, attachments, view.Viewer.of(ctx, version, links))}


@endpoint("PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE)
def update(
    ctx: RequestContext, volume_id: str, body: Body, version: mv.Version, links: Links
) -> Body:
    """Change name, description or all metadata."""
    volume = Volume.get(ctx, volume_id)
    ctx.authorize(policy.UPDATE, volume)
    metadata.check_writable(volume)
    wanted = body["volume"]
    if texts := _texts(wanted):
        volumes.update(volume.id, texts)
    if "metadata" in wanted:
        volume_metadata.replace(volume.id, wanted["metadata"])
    volume = Volume.get(ctx, volume_id)
    attachments = attachment_queries.brief_of_volumes([volume.id])[volume.id]
    return {"volume": view.changed(volume, attachments, view.Viewer.of(ctx, version, links))}


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202)
def delete(
    ctx: RequestContext, volume_id: str, query: Mapping[str, str], version: mv.Version
) -> None:
    """Mark a volume and have its backend remove it; ``cascade`` finds nothing to go along."""
    fields.truth("cascade", query.get("cascade", "false"))
    forced = version >= mv.VOLUME_DELETE_FORCE and fields.truth(
        "force", query.get("force", "false")
    )
    volume = Volume.get(ctx, volume_id)
    ctx.authorize(policy.DELETE, volume)
    if forced:
        ctx.authorize(policy.FORCE_DELETE, volume)
        _mark_by_force(volume)
    else:
        _mark(volume)
    _have_removed(ctx, volume)


def _mark(volume: Volume) -> None:
    try:
        volume.fire(Event.DELETE)
    except exception.InvalidTransition as error:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} must be available, or in an error, to be deleted, "
            f"but its status is {volume.status}."
        ) from error


def _mark_by_force(volume: Volume) -> None:
    """Mark a volume whatever it goes through; what its backend still does to it comes first."""
    try:
        volume.fire(Event.DELETE)
    except exception.InvalidTransition:
        volumes.reset(volume.id, "error", None)
        volume.fire(Event.DELETE)


def _have_removed(ctx: RequestContext, volume: Volume) -> None:
    try:
        rpcapi.delete_volume(ctx, volume)
    except exception.AttachdError as error:
        with contextlib.suppress(exception.InvalidTransition, exception.NotFound):
            volume.fire(Event.DELETE_FAILED, error=str(error))
        raise

# SPDX-License-Identifier: Apache-2.0
"""Volumes: create, look at, change; lists.py lists them, deletion.py deletes them."""

from typing import Any

from attachd.api.endpoint import endpoint
from attachd.api.volumes import description, load, policy, schema, view, wishes, work
from attachd.context import RequestContext

ITEM = "/volumes/{volume_id}"

Body = dict[str, Any]


@endpoint("POST", "/volumes", policy=policy.CREATE, body=schema.CREATE, status=202)
def create(
    ctx: RequestContext, body: Body, version: view.Version, links: view.Links, own: view.Own
) -> Body:
    """Store a volume at the backend that fits best, and have that make it."""
    volume = work.create(ctx, wishes.of_new_volume(ctx, body["volume"]))
    return {"volume": view.created(volume, view.Viewer.of(ctx, version, links, own))}


@endpoint("GET", ITEM, policy=policy.GET)
def show(
    ctx: RequestContext, volume_id: str, version: view.Version, links: view.Links, own: view.Own
) -> Body:
    """Answer one volume."""
    volume = load.volume(ctx, volume_id, policy.GET)
    viewer = view.Viewer.of(ctx, version, links, own)
    return {"volume": view.detail(*load.whole(volume), viewer)}


@endpoint("PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE)
def update(
    ctx: RequestContext,
    volume_id: str,
    body: Body,
    version: view.Version,
    links: view.Links,
    own: view.Own,
) -> Body:
    """Change name, description or all metadata."""
    volume = load.writable(ctx, volume_id, policy.UPDATE)
    description.change(volume, body["volume"])
    volume = load.volume(ctx, volume_id, policy.UPDATE)
    viewer = view.Viewer.of(ctx, version, links, own)
    return {"volume": view.changed(volume, load.attachments(volume), viewer)}

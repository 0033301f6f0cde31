# SPDX-License-Identifier: Apache-2.0
"""Volumes: create, look at, change; lists.py lists them, deletion.py deletes them."""

import functools
from typing import Any, Final

from attachd.api import idempotency
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.volumes import description, load, policy, schema, view, wishes, work
from attachd.context import RequestContext

ITEM = "/volumes/{volume_id}"

Body = dict[str, Any]
RECIPE: Final = idempotency.Recipe(keep=lambda answer: answer, remake=work.remake)
"""There are no secrets in a volume's answer."""


@endpoint(
    "POST",
    "/volumes",
    policy=policy.CREATE,
    body=schema.CREATE,
    status=202,
    idempotent=RECIPE,
    doc=EndpointDoc({"volume": view.Whole}, faults=(409,)),
)
def create(
    ctx: RequestContext,
    body: Body,
    version: view.Version,
    links: view.Links,
    ext_version: view.ExtVersion,
    idempotency_claim: idempotency.IdempotencyClaim | None = None,
) -> Body:
    """Store a volume at the backend that fits best, and have that make it."""
    if idempotency_claim is None:
        volume = work.create(ctx, wishes.of_new_volume(ctx, body["volume"]))
    else:
        values = functools.partial(wishes.of_new_volume, ctx, body["volume"])
        volume = work.create_once(ctx, idempotency_claim, values)
    return {"volume": view.created(volume, view.Viewer.of(ctx, version, links, ext_version))}


@endpoint("GET", ITEM, policy=policy.GET, doc=EndpointDoc({"volume": view.Detail}))
def show(
    ctx: RequestContext,
    volume_id: str,
    version: view.Version,
    links: view.Links,
    ext_version: view.ExtVersion,
) -> Body:
    """Answer one volume."""
    volume = load.volume(ctx, volume_id, policy.GET)
    viewer = view.Viewer.of(ctx, version, links, ext_version)
    return {"volume": view.detail(*load.whole(volume), viewer)}


@endpoint(
    "PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE, doc=EndpointDoc({"volume": view.Whole})
)
def update(
    ctx: RequestContext,
    volume_id: str,
    body: Body,
    version: view.Version,
    links: view.Links,
    ext_version: view.ExtVersion,
) -> Body:
    """Change name, description or all metadata."""
    volume = load.writable(ctx, volume_id, policy.UPDATE)
    description.change(volume, body["volume"])
    volume = load.volume(ctx, volume_id, policy.UPDATE)
    viewer = view.Viewer.of(ctx, version, links, ext_version)
    return {"volume": view.changed(volume, load.attachments(volume), viewer)}

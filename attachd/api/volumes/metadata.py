# SPDX-License-Identifier: Apache-2.0
"""The metadata of volumes.

From 3.15 on, whoever read it may write it on condition that nobody else has meanwhile: they send
back, as ``If-Match``, the ``ETag`` of what they read.
"""

from collections.abc import Mapping
import hashlib
import json
from typing import Any

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.volumes import load, policy, schema
from attachd.context import RequestContext
from attachd.db import volume_metadata
from attachd.objects import Volume

PAIRS = "/volumes/{volume_id}/metadata"
PAIR = f"{PAIRS}/{{key}}"

Body = dict[str, Any]

_ALL = EndpointDoc({"metadata": dict[str, str]})
_ONE = EndpointDoc({"meta": dict[str, str]})


@endpoint("GET", PAIRS, policy=policy.GET_METADATA, doc=_ALL)
def show_all(
    ctx: RequestContext, volume_id: str, version: mv.Version, response: webob.Response
) -> Body:
    """Answer all pairs."""
    volume = load.volume(ctx, volume_id, policy.GET_METADATA)
    if version >= mv.ETAGS:
        response.headers["ETag"] = f'"{_etag(volume.metadata)}"'
    return {"metadata": volume.metadata}


@endpoint("POST", PAIRS, policy=policy.CREATE_METADATA, body=schema.PAIRS, doc=_ALL)
def merge(ctx: RequestContext, volume_id: str, body: Body) -> Body:
    """Set some pairs, keep the others, and answer all."""
    volume = load.writable(ctx, volume_id, policy.CREATE_METADATA)
    return {"metadata": volume_metadata.merge(volume.id, body["metadata"])}


@endpoint(
    "PUT",
    PAIRS,
    policy=policy.UPDATE_METADATA,
    body=schema.PAIRS,
    doc=_ALL._replace(faults=(412,)),
)
def replace(
    ctx: RequestContext, volume_id: str, body: Body, version: mv.Version, request: webob.Request
) -> Body:
    """Set some pairs, remove the others, and answer all."""
    volume = load.writable(ctx, volume_id, policy.UPDATE_METADATA)
    expected = _expected(volume, version, request)
    return {"metadata": volume_metadata.replace(volume.id, body["metadata"], expected)}


@endpoint("GET", PAIR, policy=policy.GET_METADATA, doc=_ONE)
def show(ctx: RequestContext, volume_id: str, key: str) -> Body:
    """Answer one pair."""
    volume = load.volume(ctx, volume_id, policy.GET_METADATA)
    if key not in volume.metadata:
        raise exception.NotFound(f"Volume {volume_id} has no metadata with key {key}.")
    return {"meta": {key: volume.metadata[key]}}


@endpoint(
    "PUT", PAIR, policy=policy.UPDATE_METADATA, body=schema.PAIR, doc=_ONE._replace(faults=(412,))
)
def update(
    ctx: RequestContext,
    volume_id: str,
    key: str,
    body: Body,
    version: mv.Version,
    request: webob.Request,
) -> Body:
    """Set one pair."""
    if key not in body["meta"]:
        raise exception.BadRequest(reason="Request body and URI mismatch")
    volume = load.writable(ctx, volume_id, policy.UPDATE_METADATA)
    volume_metadata.merge(volume.id, body["meta"], _expected(volume, version, request))
    return {"meta": body["meta"]}


@endpoint("DELETE", PAIR, policy=policy.DELETE_METADATA)
def delete(ctx: RequestContext, volume_id: str, key: str) -> None:
    """Remove one pair."""
    volume = load.writable(ctx, volume_id, policy.DELETE_METADATA)
    volume_metadata.delete(volume.id, key)


def _expected(
    volume: Volume, version: mv.Version, request: webob.Request
) -> Mapping[str, str] | None:
    """Return what must still be there when it is written; None: whatever is there.

    :raises PreconditionFailed: the caller has read something else
    """
    header = request.headers.get("If-Match")
    if version < mv.ETAGS or not header:
        return None
    accepted = {part.strip().removeprefix("W/").strip('"') for part in header.split(",")}
    if not accepted & {"*", _etag(volume.metadata)}:
        raise exception.PreconditionFailed(volume_id=volume.id)
    metadata: dict[str, str] = volume.metadata
    return metadata


def _etag(metadata: Mapping[str, str]) -> str:
    text = json.dumps({"metadata": metadata}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]

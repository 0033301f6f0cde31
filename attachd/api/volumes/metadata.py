# SPDX-License-Identifier: Apache-2.0
"""Endpoints of the metadata of volumes.

From 3.15 on, a caller can make a write conditional: ``If-Match`` with the ``ETag`` of an earlier
read is refused if the metadata changed since.
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
from attachd.db.volumes import volume_metadata
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
    """Return all pairs."""
    volume = load.get(ctx, volume_id, policy.GET_METADATA)
    if version >= mv.ETAGS:
        response.headers["ETag"] = f'"{_etag(volume.metadata)}"'
    return {"metadata": volume.metadata}


@endpoint("POST", PAIRS, policy=policy.CREATE_METADATA, body=schema.PAIRS, doc=_ALL)
def merge(ctx: RequestContext, volume_id: str, body: Body) -> Body:
    """Set some pairs, keep the others, and return all."""
    volume = load.get_writable(ctx, volume_id, policy.CREATE_METADATA)
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
    """Set some pairs, remove the others, and return all."""
    volume = load.get_writable(ctx, volume_id, policy.UPDATE_METADATA)
    expected = _expected(volume, version, request)
    return {"metadata": volume_metadata.replace(volume.id, body["metadata"], expected)}


@endpoint("GET", PAIR, policy=policy.GET_METADATA, doc=_ONE)
def show(ctx: RequestContext, volume_id: str, key: str) -> Body:
    """Return one pair."""
    volume = load.get(ctx, volume_id, policy.GET_METADATA)
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
    volume = load.get_writable(ctx, volume_id, policy.UPDATE_METADATA)
    volume_metadata.merge(volume.id, body["meta"], _expected(volume, version, request))
    return {"meta": body["meta"]}


@endpoint("DELETE", PAIR, policy=policy.DELETE_METADATA)
def delete(ctx: RequestContext, volume_id: str, key: str) -> None:
    """Remove one pair."""
    volume = load.get_writable(ctx, volume_id, policy.DELETE_METADATA)
    volume_metadata.delete(volume.id, key)


def _expected(
    volume: Volume, version: mv.Version, request: webob.Request
) -> Mapping[str, str] | None:
    """Return the metadata that a conditional write expects; None: the write is unconditional.

    :raises PreconditionFailed: the metadata has changed since the caller read it
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

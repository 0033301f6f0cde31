# SPDX-License-Identifier: Apache-2.0
"""Endpoints of the metadata of snapshots."""

from typing import Any

from attachd import exception
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.snapshots import load, policy, schema
from attachd.context import RequestContext
from attachd.db.volumes import snapshot_metadata

PAIRS = "/snapshots/{snapshot_id}/metadata"
PAIR = f"{PAIRS}/{{key}}"

Body = dict[str, Any]

_ALL = EndpointDoc({"metadata": dict[str, str]})
_ONE = EndpointDoc({"meta": dict[str, str]})


@endpoint("GET", PAIRS, policy=policy.GET_METADATA, doc=_ALL)
def show_all(ctx: RequestContext, snapshot_id: str) -> Body:
    """Return all pairs."""
    return {"metadata": load.get(ctx, snapshot_id, policy.GET_METADATA)["metadata"]}


@endpoint("POST", PAIRS, policy=policy.UPDATE_METADATA, body=schema.PAIRS, doc=_ALL)
def merge(ctx: RequestContext, snapshot_id: str, body: Body) -> Body:
    """Set some pairs, keep the others, and return all."""
    row = load.get(ctx, snapshot_id, policy.UPDATE_METADATA)
    return {"metadata": snapshot_metadata.merge(row["id"], body["metadata"])}


@endpoint("PUT", PAIRS, policy=policy.UPDATE_METADATA, body=schema.PAIRS, doc=_ALL)
def replace(ctx: RequestContext, snapshot_id: str, body: Body) -> Body:
    """Set some pairs, remove the others, and return all."""
    row = load.get(ctx, snapshot_id, policy.UPDATE_METADATA)
    return {"metadata": snapshot_metadata.replace(row["id"], body["metadata"])}


@endpoint("GET", PAIR, policy=policy.GET_METADATA, doc=_ONE)
def show(ctx: RequestContext, snapshot_id: str, key: str) -> Body:
    """Return one pair."""
    pairs = load.get(ctx, snapshot_id, policy.GET_METADATA)["metadata"]
    if key not in pairs:
        raise exception.NotFound(f"Snapshot {snapshot_id} has no metadata with key {key}.")
    return {"meta": {key: pairs[key]}}


@endpoint("PUT", PAIR, policy=policy.UPDATE_METADATA, body=schema.PAIR, doc=_ONE)
def update(ctx: RequestContext, snapshot_id: str, key: str, body: Body) -> Body:
    """Set one pair."""
    if key not in body["meta"]:
        raise exception.BadRequest(reason="Request body and URI mismatch")
    row = load.get(ctx, snapshot_id, policy.UPDATE_METADATA)
    snapshot_metadata.merge(row["id"], body["meta"])
    return {"meta": body["meta"]}


@endpoint("DELETE", PAIR, policy=policy.DELETE_METADATA)
def delete(ctx: RequestContext, snapshot_id: str, key: str) -> None:
    """Remove one pair."""
    row = load.get(ctx, snapshot_id, policy.DELETE_METADATA)
    snapshot_metadata.delete(row["id"], key)

# SPDX-License-Identifier: Apache-2.0
"""Endpoints of snapshots; metadata.py has those of their metadata."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attachd import exception, notifications
from attachd.api import idempotency, paging, validation
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, Links, endpoint
from attachd.api.snapshots import backend_calls, filters, load, policy, schema, view
from attachd.api.volumes import create_params
from attachd.api.volumes import load as volume_load
from attachd.context import RequestContext
from attachd.db.row_types import SnapshotWithVolumeRow
from attachd.db.volumes import snapshot_queries, snapshot_rules, snapshot_store

COLLECTION: Final = "/snapshots"
ITEM: Final = "/snapshots/{snapshot_id}"

Body = dict[str, Any]
Query = Mapping[str, str]

IDEMPOTENCY_SPEC: Final = idempotency.IdempotencySpec(
    keep=lambda answer: answer, remake=backend_calls.replay_create
)
_FORCE_IS_USELESS: Final = (
    "Since microversion 3.66 the 'force' flag is invalid for this request: a snapshot of a volume "
    "in use needs none. Leave it out."
)


@endpoint(
    "POST",
    COLLECTION,
    policy=policy.CREATE,
    body=schema.CREATE,
    status=202,
    idempotent=IDEMPOTENCY_SPEC,
    doc=EndpointDoc({"snapshot": view.SnapshotDetail}, faults=(409,)),
)
def create(
    ctx: RequestContext,
    body: Body,
    version: mv.Version,
    idempotency_claim: idempotency.IdempotencyClaim | None = None,
) -> Body:
    """Store a snapshot and have the backend of its volume take it.

    A volume in use has to be allowed by ``force`` before 3.66.  What its hosts have not written
    yet is not in the snapshot, as after a power failure.
    """
    requested = body["snapshot"]
    volume = volume_load.get(ctx, requested["volume_id"] or "", policy.CREATE)
    values = {
        **create_params.name_and_description(requested),
        "metadata": requested.get("metadata") or {},
    }
    statuses = _source_statuses(requested, version)
    row = backend_calls.create(ctx, volume, values, statuses, idempotency_claim)
    return {"snapshot": view.plain(row, version)}


def _source_statuses(requested: Mapping[str, Any], version: mv.Version) -> tuple[str, ...]:
    """Return the statuses of a volume in which a request takes a snapshot of it."""
    force = requested.get("force")
    is_forced = force is not None and validation.parse_bool("snapshot.force", force)
    if version >= mv.SNAPSHOT_IN_USE:
        if force is not None and not is_forced:
            raise exception.BadRequest(reason=_FORCE_IS_USELESS)
        return snapshot_rules.SOURCE_STATUSES
    return snapshot_rules.SOURCE_STATUSES if is_forced else ("available",)


@endpoint("GET", ITEM, policy=policy.GET, doc=EndpointDoc({"snapshot": view.ExtendedDetail}))
def show(ctx: RequestContext, snapshot_id: str, version: mv.Version) -> Body:
    """Return one snapshot."""
    row = load.get(ctx, snapshot_id, policy.GET)
    return {"snapshot": view.detail(row, view.Viewer.from_context(ctx, version))}


@endpoint(
    "PUT",
    ITEM,
    policy=policy.UPDATE,
    body=schema.UPDATE,
    doc=EndpointDoc({"snapshot": view.SnapshotDetail}),
)
def update(ctx: RequestContext, snapshot_id: str, body: Body, version: mv.Version) -> Body:
    """Change name or description."""
    row = load.get(ctx, snapshot_id, policy.UPDATE)
    notifications.snapshot("update.start", row, row["availability_zone"])
    snapshot_store.update(row["id"], create_params.name_and_description(body["snapshot"]))
    row = load.get(ctx, snapshot_id, policy.UPDATE)
    notifications.snapshot("update.end", row, row["availability_zone"])
    return {"snapshot": view.plain(row, version)}


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202)
def delete(ctx: RequestContext, snapshot_id: str) -> None:
    """Mark a snapshot and have its backend delete it."""
    row = load.get(ctx, snapshot_id, policy.DELETE)
    try:
        backend_calls.delete(ctx, row)
    except exception.InvalidTransition as error:
        raise exception.InvalidSnapshot(
            reason=f"Snapshot {row['id']} status must be available, or an error, to be deleted, "
            f"but its status is {row['state']}."
        ) from error


SORT_KEYS: Final = MappingProxyType(
    {
        **{name: name for name in snapshot_queries.SORTABLE - {"state", "size_gib"}},
        "display_name": "name",
        "status": "state",
        "size": "size_gib",
        "volume_size": "size_gib",
    }
)
_PARAMETERS: Final = {
    **filters.QUERY_PARAMETERS,
    paging.WITH_COUNT: validation.query_flag("Return the number of snapshots on all pages."),
}
_INDEX_DOC: Final = EndpointDoc(
    {"snapshots": list[view.SnapshotSummary], **view.LIST_EXTRAS}, _PARAMETERS
)
_DETAIL_DOC: Final = EndpointDoc(
    {"snapshots": list[view.ExtendedDetail], **view.LIST_EXTRAS}, _PARAMETERS
)


@endpoint("GET", COLLECTION, policy=policy.GET_ALL, doc=_INDEX_DOC)
def index(ctx: RequestContext, query: Query, version: mv.Version, links: Links) -> Body:
    """Return snapshots without details."""
    rows, answer = _page(ctx, query, version, links, COLLECTION)
    return {"snapshots": [view.summary(row) for row in rows], **answer}


@endpoint("GET", f"{COLLECTION}/detail", policy=policy.GET_ALL, doc=_DETAIL_DOC)
def detail(ctx: RequestContext, query: Query, version: mv.Version, links: Links) -> Body:
    """Return snapshots in full."""
    rows, answer = _page(ctx, query, version, links, f"{COLLECTION}/detail")
    viewer = view.Viewer.from_context(ctx, version)
    return {"snapshots": [view.detail(row, viewer) for row in rows], **answer}


def _page(
    ctx: RequestContext, query: Query, version: mv.Version, links: Links, path: str
) -> tuple[list[SnapshotWithVolumeRow], Body]:
    """Return the rows of a page, and what the answer has besides them."""
    parameters = dict(query)
    page = paging.read(parameters, SORT_KEYS)
    counted = paging.pop_with_count(parameters, version)
    matching = filters.parse(ctx, parameters, version)
    rows = [] if matching is None else snapshot_queries.page(matching, page)
    answer: Body = {}
    if more := paging.next_link(links, path, query, page, rows):
        answer["snapshots_links"] = more
    if counted:
        answer["count"] = 0 if matching is None else snapshot_queries.count(matching)
    return rows, answer

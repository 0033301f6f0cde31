# SPDX-License-Identifier: Apache-2.0
"""Endpoints of volumes; metadata.py has those of their metadata."""

from collections.abc import Mapping
import functools
from types import MappingProxyType
from typing import Annotated, Any, Final

import webob

from attachd import exception
from attachd.api import idempotency, override, paging, validation
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.volumes import (
    backend_calls,
    create_params,
    filters,
    force_delete,
    load,
    notify,
    policy,
    schema,
    view,
)
from attachd.context import RequestContext
from attachd.db.row_types import ListedVolumeRow
from attachd.db.volumes import volume_metadata, volume_queries, volume_store
from attachd.objects import Volume

ITEM = "/volumes/{volume_id}"

Body = dict[str, Any]
IDEMPOTENCY_SPEC: Final = idempotency.IdempotencySpec(
    keep=lambda answer: answer, remake=backend_calls.replay_create
)
"""The answer holds no secrets, so it is stored whole."""


@endpoint(
    "POST",
    "/volumes",
    policy=policy.CREATE,
    body=schema.CREATE,
    status=202,
    idempotent=IDEMPOTENCY_SPEC,
    doc=EndpointDoc({"volume": view.VolumeDetail}, faults=(409,)),
)
def create(
    ctx: RequestContext,
    body: Body,
    version: view.Version,
    links: view.Links,
    idempotency_claim: idempotency.IdempotencyClaim | None = None,
) -> Body:
    """Store a volume at the backend that fits best, and have that backend create it."""
    if idempotency_claim is None:
        volume = backend_calls.create(ctx, create_params.build(ctx, body["volume"]))
    else:
        values = functools.partial(create_params.build, ctx, body["volume"])
        volume = backend_calls.create_once(ctx, idempotency_claim, values)
    return {"volume": view.created(volume, view.Viewer.from_context(ctx, version, links))}


@endpoint("GET", ITEM, policy=policy.GET, doc=EndpointDoc({"volume": view.Detail}))
def show(ctx: RequestContext, volume_id: str, version: view.Version, links: view.Links) -> Body:
    """Return one volume."""
    volume = load.get(ctx, volume_id, policy.GET)
    viewer = view.Viewer.from_context(ctx, version, links)
    return {"volume": view.detail(*load.with_details(volume), viewer)}


@endpoint(
    "PUT",
    ITEM,
    policy=policy.UPDATE,
    body=schema.UPDATE,
    doc=EndpointDoc({"volume": view.VolumeDetail}),
)
def update(
    ctx: RequestContext, volume_id: str, body: Body, version: view.Version, links: view.Links
) -> Body:
    """Change name, description or all metadata."""
    volume = load.get_writable(ctx, volume_id, policy.UPDATE)
    _apply_update(volume, body["volume"])
    volume = load.get(ctx, volume_id, policy.UPDATE)
    viewer = view.Viewer.from_context(ctx, version, links)
    return {"volume": view.updated(volume, load.attachments(volume), viewer)}


def _apply_update(volume: Volume, requested: Mapping[str, Any]) -> None:
    """Store name, description or all metadata, and notify.

    :param requested: the body's fields
    """
    with notify.change(volume, "update"):
        if texts := create_params.name_and_description(requested):
            volume_store.update(volume.id, texts)
        if "metadata" in requested:
            volume_metadata.replace(volume.id, requested["metadata"])


Query = Mapping[str, str]

SORT_KEYS: Final = MappingProxyType(
    {
        **{name: name for name in volume_queries.SORTABLE - {"size_gib", "host"}},
        "display_name": "name",
        "size": "size_gib",
    }
)
_LIST_PARAMETERS: Final = {
    **filters.QUERY_PARAMETERS,
    paging.WITH_COUNT: validation.query_flag("Return the number of volumes on all pages."),
}
_LIST_DOC: Final = EndpointDoc(
    {"volumes": list[view.VolumeSummary], **view.LIST_EXTRAS}, _LIST_PARAMETERS
)
_DETAIL_DOC: Final = EndpointDoc(
    {"volumes": list[view.Detail], **view.LIST_EXTRAS}, _LIST_PARAMETERS
)
_SUMMARY_DOC: Final = EndpointDoc(
    {
        "volume-summary": {
            "total_count": int,
            "total_size": int,
            "metadata": Annotated[dict[str, list[str]], mv.VOLUME_SUMMARY_METADATA],
        }
    },
    paging.ALL_PROJECTS_PARAMETER,
)


@endpoint("GET", "/volumes", policy=policy.GET_ALL, doc=_LIST_DOC)
def index(ctx: RequestContext, query: Query, version: mv.Version, links: view.Links) -> Body:
    """Return ids and names, and under attachd 1.0 the number of attachments of each volume."""
    viewer = view.Viewer.from_context(ctx, version, links)
    rows, answer = _page(ctx, query, viewer, "/volumes")
    if ctx.attachd_version is None:
        return {
            "volumes": [view.summary(volume, viewer) for volume in load.from_rows(ctx, rows)],
            **answer,
        }
    counted = load.from_rows_with_counts(ctx, rows)
    return {"volumes": [view.summary_with_count(*pair, viewer) for pair in counted], **answer}


@endpoint("GET", "/volumes/detail", policy=policy.GET_ALL, doc=_DETAIL_DOC)
def detail(ctx: RequestContext, query: Query, version: mv.Version, links: view.Links) -> Body:
    """Return volumes in full."""
    viewer = view.Viewer.from_context(ctx, version, links)
    rows, answer = _page(ctx, query, viewer, "/volumes/detail")
    details = load.from_rows_with_details(ctx, rows)
    return {"volumes": [view.detail(*data, viewer) for data in details], **answer}


def _page(
    ctx: RequestContext, query: Query, viewer: view.Viewer, path: str
) -> tuple[list[ListedVolumeRow], Body]:
    """Return the rows of a page, and what the answer has besides them."""
    parameters = dict(query)
    page = paging.read(parameters, SORT_KEYS)
    counted = paging.pop_with_count(parameters, viewer.version)
    matching = filters.parse(ctx, parameters, viewer.version)
    rows = [] if matching is None else volume_queries.page(matching, page)
    answer: Body = {}
    if more := paging.next_link(viewer.links, path, query, page, rows):
        answer["volumes_links"] = more
    if counted:
        answer["count"] = 0 if matching is None else volume_queries.count(matching)
    return rows, answer


@endpoint(
    "GET", "/volumes/summary", since=mv.VOLUME_SUMMARY, policy=policy.GET_ALL, doc=_SUMMARY_DOC
)
def summary(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """Return the number of volumes and their total size."""
    project = paging.project(ctx, query)
    matching: volume_queries.Filters = {} if project is None else {"project_id": project}
    usage = volume_queries.usage(matching)
    answer: Body = {"total_count": usage.volumes, "total_size": usage.gib}
    if version >= mv.VOLUME_SUMMARY_METADATA:
        answer["metadata"] = volume_queries.list_metadata_values(matching)
    return {"volume-summary": answer}


_DELETE_DOC = EndpointDoc(
    parameters={
        "cascade": validation.query_flag("Delete its snapshots with it."),
        "force": validation.query_flag("Delete in any state. For administrators."),
        **override.QUERY_PARAMETERS,
    },
    ext_parameters=frozenset(override.QUERY_PARAMETERS),
)


@endpoint("DELETE", "/volumes/{volume_id}", policy=policy.DELETE, status=202, doc=_DELETE_DOC)
def delete(
    ctx: RequestContext,
    volume_id: str,
    query: Mapping[str, str],
    version: mv.Version,
    request: webob.Request,
) -> None:
    """Mark a volume, with ``cascade`` its snapshots too, and have its backend delete it."""
    cascade = validation.parse_bool("cascade", query.get("cascade", "false"))
    force = validation.parse_bool("force", query.get("force", "false"))
    volume = load.get(ctx, volume_id, policy.DELETE)
    if force and version >= mv.VOLUME_DELETE_FORCE:
        ctx.authorize(policy.FORCE_DELETE, volume)
        force_delete.delete(ctx, volume, request, cascade=cascade)
        return
    try:
        backend_calls.delete(ctx, volume, cascade=cascade)
    except exception.InvalidTransition as error:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} must be available, or in an error, to be deleted, "
            f"but its status is {volume.status}."
        ) from error


ENCRYPTION = "/volumes/{volume_id}/encryption"


@endpoint(
    "GET", ENCRYPTION, policy=policy.ENCRYPTION, doc=EndpointDoc({"encryption_key_id": None})
)
def show_encryption(ctx: RequestContext, volume_id: str) -> dict[str, None]:
    """Return how a volume is encrypted: not at all.  Nova asks for this."""
    load.get(ctx, volume_id, policy.ENCRYPTION)
    return {"encryption_key_id": None}


@endpoint("GET", f"{ENCRYPTION}/{{key}}", policy=policy.ENCRYPTION)
def show_encryption_field(ctx: RequestContext, volume_id: str, key: str) -> None:
    """Return one field of the encryption; the only one has no value."""
    if key not in show_encryption(ctx, volume_id):
        raise exception.NotFound(f"Volume {volume_id} is not encrypted: it has no {key}.")

# SPDX-License-Identifier: Apache-2.0
"""Endpoints of transfers of volumes to other projects.

``/volume-transfers`` is the resource since 3.55, ``/os-volume-transfer`` the same in all versions.
A transfer is the database's business alone: no manager takes part, and no data moves.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import webob

from attachd.api import microversions as mv
from attachd.api import paging, validation
from attachd.api.endpoint import EndpointDoc, Links, endpoint
from attachd.api.transfers import policy, schema, view
from attachd.api.volumes import load as volume_load
from attachd.api.volumes import notify
from attachd.context import RequestContext
from attachd.db.engine.paging import Page
from attachd.db.row_types import TransferRow
from attachd.db.volumes import transfer_store, volume_store
from attachd.objects import Volume, scope

COLLECTION: Final = "/volume-transfers"
FORMER_COLLECTION: Final = "/os-volume-transfer"
ITEM: Final = f"{COLLECTION}/{{transfer_id}}"
FORMER_ITEM: Final = f"{FORMER_COLLECTION}/{{transfer_id}}"

Body = dict[str, Any]
Query = Mapping[str, str]

_DETAIL: Final = EndpointDoc({"transfer": view.TransferDetail})


class _Owner(NamedTuple):
    """The owner of a transfer, as the target of policy."""

    project_id: str
    user_id: str | None = None


def _load(ctx: RequestContext, transfer_id: str, rule: str) -> TransferRow:
    """Load a transfer of the caller's project.

    :param rule: the policy rule that must allow the caller to act on it
    :raises TransferNotFound: there is none
    :raises Forbidden: the rule denies it
    """
    row = transfer_store.get(transfer_id, scope(ctx))
    ctx.authorize(rule, _Owner(row["project_id"]))
    return row


@endpoint(
    "POST",
    COLLECTION,
    policy=policy.CREATE,
    body=schema.VERSIONS,
    status=202,
    doc=EndpointDoc({"transfer": view.NewTransfer}),
)
@endpoint(
    "POST",
    FORMER_COLLECTION,
    policy=policy.CREATE,
    body=schema.CREATE,
    status=202,
    doc=EndpointDoc({"transfer": view.NewTransfer}),
)
def create(ctx: RequestContext, body: Body, version: mv.Version, links: Links) -> Body:
    """Offer a volume, and return the key by which another project gets it.

    Only this answer has the key, so a repeated request has no stored answer.
    """
    requested = body["transfer"]
    volume = volume_load.get(ctx, requested["volume_id"], policy.CREATE)
    name = requested.get("name")
    no_snapshots = requested.get("no_snapshots", False)
    values = {
        "name": name and name.strip(),
        "no_snapshots": validation.parse_bool("transfer.no_snapshots", no_snapshots),
    }
    with notify.change(volume, "transfer.create"):
        new = transfer_store.create(volume.id, volume.project_id, values)
    shown = view.detail(new.row, links, version)
    return {"transfer": {**shown, "auth_key": new.auth_key}}


@endpoint("GET", ITEM, policy=policy.GET, doc=_DETAIL)
@endpoint("GET", FORMER_ITEM, policy=policy.GET, doc=_DETAIL)
def show(ctx: RequestContext, transfer_id: str, version: mv.Version, links: Links) -> Body:
    """Return one transfer, without its key."""
    return {"transfer": view.detail(_load(ctx, transfer_id, policy.GET), links, version)}


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202)
@endpoint("DELETE", FORMER_ITEM, policy=policy.DELETE, status=202)
def delete(ctx: RequestContext, transfer_id: str) -> None:
    """Withdraw the offer of a volume, which is available again."""
    row = _load(ctx, transfer_id, policy.DELETE)
    with notify.change(_load_volume(ctx, row), "transfer.delete"):
        transfer_store.delete(row)


_ACCEPT_DOC: Final = EndpointDoc({"transfer": view.TransferSummary}, faults=(413,))


@endpoint(
    "POST",
    f"{ITEM}/accept",
    policy=policy.ACCEPT,
    body=schema.ACCEPT,
    status=202,
    doc=_ACCEPT_DOC,
)
@endpoint(
    "POST",
    f"{FORMER_ITEM}/accept",
    policy=policy.ACCEPT,
    body=schema.ACCEPT,
    status=202,
    doc=_ACCEPT_DOC,
)
def accept(ctx: RequestContext, transfer_id: str, body: Body, links: Links) -> Body:
    """Give a volume to the caller's project, with its key.

    A key is a random number of 128 bits: it cannot be guessed, however often a caller tries.
    """
    row = transfer_store.get(transfer_id, None)
    transfer_store.check_key(row, str(body["accept"]["auth_key"]))
    new_owner = transfer_store.Acceptor(str(ctx.project_id), ctx.user_id, bool(ctx.is_admin))
    with notify.change(_load_volume(ctx, row), "transfer.accept"):
        transfer_store.accept(row, new_owner)
    return {"transfer": view.summary(row, links)}


def _load_volume(ctx: RequestContext, row: TransferRow) -> Volume:
    """Load the volume of a transfer, in whichever project it is."""
    return Volume.from_row(ctx, volume_store.get(row["volume_id"], None))


SORT_KEYS: Final = MappingProxyType(
    {
        **{name: name for name in transfer_store.SORTABLE - {"project_id"}},
        "display_name": "name",
        "source_project_id": "project_id",
    }
)
_FILTERS: Final = {
    "id": "Those whose id is this.",
    "name": "Those whose name is this.",
    "display_name": "The same.",
    "volume_id": "Those whose volume_id is this.",
    "project_id": "Those whose source project is this.",
    "source_project_id": "The same.",
    "no_snapshots": "Those that leave the snapshots of the volume in its project, or not.",
    "destination_project_id": "Those that this project has accepted: none is left.",
    "accepted": "Those that are accepted: none is left.",
}
_PARAMETERS: Final = {
    **paging.PAGE_PARAMETERS,
    **paging.ALL_PROJECTS_PARAMETER,
    **{name: validation.query_text(text) for name, text in _FILTERS.items()},
}
_INDEX_DOC: Final = EndpointDoc(
    {"transfers": list[view.TransferSummary], **view.LIST_EXTRAS}, _PARAMETERS
)
_DETAIL_DOC: Final = EndpointDoc(
    {"transfers": list[view.TransferDetail], **view.LIST_EXTRAS}, _PARAMETERS
)
_COLUMNS: Final = {"display_name": "name", "source_project_id": "project_id"}
"""The columns of filters that have another name."""


@endpoint("GET", COLLECTION, policy=policy.GET_ALL, doc=_INDEX_DOC)
@endpoint("GET", FORMER_COLLECTION, policy=policy.GET_ALL, doc=_INDEX_DOC)
def index(
    ctx: RequestContext, query: Query, version: mv.Version, links: Links, request: webob.Request
) -> Body:
    """List transfers without details."""
    rows, answer = _page(ctx, query, version, links, _path(request))
    return {"transfers": [view.summary(row, links) for row in rows], **answer}


@endpoint("GET", f"{COLLECTION}/detail", policy=policy.GET_ALL, doc=_DETAIL_DOC)
@endpoint("GET", f"{FORMER_COLLECTION}/detail", policy=policy.GET_ALL, doc=_DETAIL_DOC)
def detail(
    ctx: RequestContext, query: Query, version: mv.Version, links: Links, request: webob.Request
) -> Body:
    """List transfers in full."""
    rows, answer = _page(ctx, query, version, links, _path(request))
    return {"transfers": [view.detail(row, links, version) for row in rows], **answer}


def _path(request: webob.Request) -> str:
    """Return the path of a list as its endpoint has it, without version and project."""
    *_, collection, last = request.path_info.split("/")
    return f"/{collection}/{last}" if last == "detail" else f"/{last}"


def _page(
    ctx: RequestContext, query: Query, version: mv.Version, links: Links, path: str
) -> tuple[list[TransferRow], Body]:
    """Return the rows of a page, and what the answer has besides them."""
    page = paging.read(query, SORT_KEYS)
    knows_markers = version >= mv.SUPPORT_TRANSFER_PAGINATION and path.startswith(COLLECTION)
    if not knows_markers:  # Nor sort keys; the order is that of creation.
        page = Page(page.limit, None, page.offset, (("created_at", "asc"),))
    matching = _filters(ctx, query, version)
    rows = [] if matching is None else transfer_store.page(matching, page)
    more = paging.next_link(links, path, query, page, rows) if knows_markers else []
    return rows, {"transfers_links": more} if more else {}


def _filters(
    ctx: RequestContext, query: Query, version: mv.Version
) -> transfer_store.Filters | None:
    """Return the filters of a request in terms of the database; None: no transfer can pass.

    :raises BadRequest: a filter is unknown, or its value is invalid
    """
    requested = paging.filters(query, _FILTERS, version)
    accepted = validation.parse_bool("accepted", requested.pop("accepted", "false"))
    found: dict[str, Any] = {_COLUMNS.get(name, name): requested[name] for name in requested}
    if accepted or found.pop("destination_project_id", None) is not None:
        return None
    if "no_snapshots" in found:
        found["no_snapshots"] = validation.parse_bool("no_snapshots", found["no_snapshots"])
    project = paging.project(ctx, query)
    if project is not None and found.setdefault("project_id", project) != project:
        return None
    return cast("transfer_store.Filters", found)

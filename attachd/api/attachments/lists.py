# SPDX-License-Identifier: Apache-2.0
"""Lists of attachments: pages of one statement each, without links to the next one.

A page in detail is of two under attachd 1.0.
"""

from collections.abc import Mapping, Sequence

from attachd.api import filters as register
from attachd.api import microversions as mv
from attachd.api import paging
from attachd.api.attachments import filters, policy, view
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.context import RequestContext
from attachd.db import attachment_queries

_PARAMETERS = {
    **paging.PAGE_PARAMETERS,
    **paging.ALL_PROJECTS_PARAMETER,
    **register.ATTACHMENT.parameters,
    **filters.EXT_FILTERS,
}


@endpoint(
    "GET",
    "/attachments",
    since=mv.NEW_ATTACH,
    policy=policy.LIST,
    doc=EndpointDoc({"attachments": list[view.Summary]}, _PARAMETERS),
)
def index(
    ctx: RequestContext,
    query: Mapping[str, str],
    version: mv.Version,
    ext_version: mv.Version | None,
) -> dict[str, list[view.Summary]]:
    """List attachments, newest first."""
    page = paging.read(query, filters.SORT_KEYS)
    return view.listed(
        attachment_queries.page(filters.read(ctx, query, version, ext_version), page)
    )


@endpoint(
    "GET",
    "/attachments/detail",
    since=mv.NEW_ATTACH,
    policy=policy.LIST,
    doc=EndpointDoc({"attachments": list[view.Detail | view.ExtDetail]}, _PARAMETERS),
)
def detail(
    ctx: RequestContext,
    query: Mapping[str, str],
    version: mv.Version,
    ext_version: mv.Version | None,
) -> dict[str, Sequence[view.Detail]]:
    """List attachments, newest first, with all that is needed to connect."""
    page = paging.read(query, filters.SORT_KEYS)
    rows = attachment_queries.page_in_full(filters.read(ctx, query, version, ext_version), page)
    return view.listed_in_full(ctx, rows, ext_version)

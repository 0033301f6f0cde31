# SPDX-License-Identifier: Apache-2.0
"""Lists of volumes, and their sums."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

from attachd.api import fields, paging
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.volumes import filters, load, policy, view
from attachd.context import RequestContext
from attachd.db import volume_queries

Body = dict[str, Any]
Query = Mapping[str, str]

SORT_KEYS: Final = MappingProxyType(
    {
        **{name: name for name in volume_queries.SORTABLE - {"size_gib", "host"}},
        "display_name": "name",
        "size": "size_gib",
    }
)
_COUNT: Final = "with_count"

_PARAMETERS: Final = {
    **filters.QUERY_PARAMETERS,
    _COUNT: fields.query_flag("Whether to answer how many there are on all pages."),
}
_DOC_BRIEF: Final = EndpointDoc({"volumes": list[view.Brief], **view.BESIDE}, _PARAMETERS)
_DOC_DETAIL: Final = EndpointDoc({"volumes": list[view.Detail], **view.BESIDE}, _PARAMETERS)
_DOC_SUMMARY: Final = EndpointDoc(
    {
        "volume-summary": {
            "total_count": int,
            "total_size": int,
            "metadata": Annotated[dict[str, list[str]], mv.VOLUME_SUMMARY_METADATA],
        }
    },
    paging.ALL_PROJECTS_PARAMETER,
)


@endpoint("GET", "/volumes", policy=policy.GET_ALL, doc=_DOC_BRIEF)
def index(
    ctx: RequestContext,
    query: Query,
    version: mv.Version,
    links: view.Links,
    ext_version: view.ExtVersion,
) -> Body:
    """Answer ids and names, and under attachd 1.0 how many times each is attached."""
    viewer = view.Viewer.of(ctx, version, links, ext_version)
    rows, answer = _page(ctx, query, viewer, "/volumes")
    if ext_version is None:
        return {"volumes": [view.brief(each, viewer) for each in load.listed(ctx, rows)], **answer}
    found = load.listed_and_counted(ctx, rows)
    return {"volumes": [view.counted(*each, viewer) for each in found], **answer}


@endpoint("GET", "/volumes/detail", policy=policy.GET_ALL, doc=_DOC_DETAIL)
def detail(
    ctx: RequestContext,
    query: Query,
    version: mv.Version,
    links: view.Links,
    ext_version: view.ExtVersion,
) -> Body:
    """Answer all of each volume."""
    viewer = view.Viewer.of(ctx, version, links, ext_version)
    rows, answer = _page(ctx, query, viewer, "/volumes/detail")
    found = load.listed_in_full(ctx, rows)
    return {"volumes": [view.detail(*each, viewer) for each in found], **answer}


def _page(
    ctx: RequestContext, query: Query, viewer: view.Viewer, path: str
) -> tuple[list[volume_queries.Row], Body]:
    """Return the rows of a page, and what is answered beside them."""
    asked = dict(query)
    wanted = paging.read(asked, SORT_KEYS)
    counted = viewer.version >= mv.SUPPORT_COUNT_INFO and fields.truth(
        _COUNT, asked.pop(_COUNT, "false")
    )
    found = filters.parse(ctx, asked, viewer.version)
    rows = [] if found is None else volume_queries.page(found, wanted)
    answer: Body = {}
    if more := paging.next_link(viewer.links, path, query, wanted, rows):
        answer["volumes_links"] = more
    if counted:
        answer["count"] = 0 if found is None else volume_queries.count(found)
    return rows, answer


@endpoint(
    "GET", "/volumes/summary", since=mv.VOLUME_SUMMARY, policy=policy.GET_ALL, doc=_DOC_SUMMARY
)
def summary(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """Answer how many volumes there are and how large they are together."""
    project = paging.project(ctx, query)
    wanted: volume_queries.Filters = {} if project is None else {"project_id": project}
    usage = volume_queries.usage(wanted)
    answer: Body = {"total_count": usage.volumes, "total_size": usage.gib}
    if version >= mv.VOLUME_SUMMARY_METADATA:
        answer["metadata"] = volume_queries.metadata_values(wanted)
    return {"volume-summary": answer}

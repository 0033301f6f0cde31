# SPDX-License-Identifier: Apache-2.0
"""The list of volume types."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NotRequired, cast

from attachd.api import fields, filters, paging
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.links import Link, Links
from attachd.api.types import policy, view
from attachd.context import RequestContext
from attachd.db import types

SORT_KEYS: Final = MappingProxyType({name: name for name in types.SORTABLE})

Body = dict[str, Any]
Query = Mapping[str, str]

_DOC: Final = EndpointDoc(
    {
        "volume_types": list[view.Type],
        "volume_type_links": NotRequired[list[Link]],
        "volume_types_links": NotRequired[list[Link]],
    },
    {**paging.PAGE_PARAMETERS, **filters.TYPE.parameters},
)


@endpoint("GET", "/types", policy=policy.GET_ALL, doc=_DOC)
def index(ctx: RequestContext, query: Query, version: mv.Version, links: Links) -> Body:
    """Answer the types that the caller may know."""
    wanted = paging.read(query, SORT_KEYS)
    # Unknown filters were ignored longer here than in other lists.
    strict = version if version >= mv.SUPPORT_VOLUME_TYPE_FILTER else mv.BASE
    found = read(ctx, filters.asked(ctx, filters.TYPE, query, strict), version)
    rows = [] if found is None else types.page(found, wanted)
    viewer = view.Viewer.of(ctx)
    answer: Body = {"volume_types": [view.detail(row, viewer) for row in rows]}
    if more := paging.next_link(links, "/types", query, wanted, rows):
        # The first is the API's own spelling, the second is what clients follow.
        answer |= {"volume_type_links": more, "volume_types_links": more}
    return answer


def read(ctx: RequestContext, asked: Query, version: mv.Version) -> types.Filters | None:
    """Turn filters into what the database is asked.

    :param asked: of filters.TYPE
    :returns: None if surely no type passes that the caller may know
    :raises BadRequest: a value makes no sense
    """
    found: dict[str, Any] = {
        name: text for name, text in asked.items() if name not in {"is_public", "extra_specs"}
    }
    # Administrators could filter by anything before.
    if "extra_specs" in asked and (ctx.is_admin or version >= mv.SUPPORT_VOLUME_TYPE_FILTER):
        specs = fields.pairs("extra_specs", asked["extra_specs"])
        # Whoever does not see an extra spec is not to guess its value either.
        if not view.sees_all_specs(ctx) and specs.keys() - view.VISIBLE_SPECS:
            return None
        found["extra_specs"] = specs
    return cast("types.Filters", found | _visibility(ctx, asked.get("is_public", "true")))


def _visibility(ctx: RequestContext, text: str) -> dict[str, Any]:
    """Return what is public and what the project has access to, or what an admin asks for."""
    if not ctx.is_admin:
        return {"known_to": ctx.project_id}
    if text.lower() == "none":
        return {}
    if fields.truth("is_public", text):
        return {"known_to": ctx.project_id}
    return {"is_public": False}

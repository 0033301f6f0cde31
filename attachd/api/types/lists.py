# SPDX-License-Identifier: Apache-2.0
"""The list of volume types."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attachd.api import fields, paging
from attachd.api import microversions as mv
from attachd.api.endpoint import endpoint
from attachd.api.links import Links
from attachd.api.types import policy, view
from attachd.context import RequestContext
from attachd.db import types

FILTERS: Final = ("is_public", "extra_specs")
"""What every caller may filter types by."""

SORT_KEYS: Final = MappingProxyType({name: name for name in types.SORTABLE})

Body = dict[str, Any]
Query = Mapping[str, str]


@endpoint("GET", "/types", policy=policy.GET_ALL)
def index(ctx: RequestContext, query: Query, version: mv.Version, links: Links) -> Body:
    """Answer the types that the caller may know."""
    wanted = paging.read(query, SORT_KEYS)
    # Unknown filters were ignored longer here than in other lists.
    strict = version if version >= mv.SUPPORT_VOLUME_TYPE_FILTER else mv.BASE
    asked = paging.filters(query, (*FILTERS, "name") if ctx.is_admin else FILTERS, strict)
    rows = types.page(_filters(ctx, asked), wanted)
    specs = _specs(asked, version)
    found = [row for row in rows if specs.items() <= view.specs(ctx, row).items()]
    answer: Body = {"volume_types": [view.detail(ctx, row) for row in found]}
    if more := paging.next_link(links, "/types", query, wanted, rows):
        # The first is the API's own spelling, the second is what clients follow.
        answer |= {"volume_type_links": more, "volume_types_links": more}
    return answer


def _filters(ctx: RequestContext, asked: Query) -> types.Filters:
    filters: types.Filters = {}
    if "name" in asked:
        filters["name"] = asked["name"]
    text = asked.get("is_public", "true")
    if not ctx.is_admin:
        filters["is_public"] = True
    elif text.lower() != "none":
        filters["is_public"] = fields.truth("is_public", text)
    return filters


def _specs(asked: Query, version: mv.Version) -> dict[str, str]:
    if "extra_specs" not in asked or version < mv.SUPPORT_VOLUME_TYPE_FILTER:
        return {}
    return fields.pairs("extra_specs", asked["extra_specs"])

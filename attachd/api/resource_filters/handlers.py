# SPDX-License-Identifier: Apache-2.0
"""The filters of each list, as filters.py has them."""

from collections.abc import Mapping
from typing import Any, TypedDict

from attachd.api import filter_register, validation
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.resource_filters import policy


class _Filters(TypedDict):
    """The filters of one list."""

    resource: str
    filters: list[str]


_DOC = EndpointDoc(
    {"resource_filters": list[_Filters]},
    {"resource": validation.query_text("Those of this list.")},
)


@endpoint(
    "GET", "/resource_filters", since=mv.RESOURCE_FILTER_CONFIG, policy=policy.GET_ALL, doc=_DOC
)
def index(query: Mapping[str, str]) -> dict[str, Any]:
    """List the filters of each list, or of the requested one, for callers without privileges."""
    selected = query.get("resource")
    return {
        "resource_filters": [
            {"resource": name, "filters": list(filter_register.for_members(resource))}
            for name, resource in filter_register.RESOURCES.items()
            if selected in {None, "", name}
        ]
    }

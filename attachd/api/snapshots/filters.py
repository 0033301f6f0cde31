# SPDX-License-Identifier: Apache-2.0
"""Filters of lists of snapshots; api/filter_register.py registers them."""

from collections.abc import Mapping
from typing import Any, Final, cast

from attachd.api import filter_register, paging, validation
from attachd.api import microversions as mv
from attachd.context import RequestContext
from attachd.db.volumes.snapshot_queries import Filters

QUERY_PARAMETERS: Final = {
    **paging.PAGE_PARAMETERS,
    **paging.ALL_PROJECTS_PARAMETER,
    **filter_register.SNAPSHOT.parameters,
}
"""Schemas of the query parameters of a list."""

_COLUMNS: Final = {"status": "state"}
"""The columns of filters that have another name."""


def parse(ctx: RequestContext, query: Mapping[str, str], version: mv.Version) -> Filters | None:
    """Return the filters of a request in terms of the database.

    :returns: None if no snapshot can pass
    :raises BadRequest: a filter is unknown, or its value is invalid
    """
    known = filter_register.allowed(ctx, filter_register.SNAPSHOT, version)
    is_unchecked = ctx.is_admin and (ctx.attachd_version is None or version < mv.RESOURCE_FILTER)
    if is_unchecked and paging.unknown_filters(query, known):
        # Administrators' filters apply unchecked, and no snapshot has such a field.
        return None
    requested = paging.filters(query, known, version)
    if version < mv.SNAPSHOT_LIST_METADATA_FILTER:
        requested.pop("metadata", None)
    counted = validation.parse_bool("consumes_quota", requested.pop("consumes_quota", "true"))
    project = paging.project(ctx, query)
    if not counted or (project and requested.get("project_id", project) != project):
        return None
    filters: dict[str, Any] = {} if project is None else {"project_id": project}
    for name, text in requested.items():
        column = _COLUMNS.get(name.removesuffix("~"), name.removesuffix("~"))
        if name.endswith("~"):
            filters.setdefault("like", {})[column] = text
        else:
            filters[column] = validation.parse_pairs(name, text) if name == "metadata" else text
    return cast("Filters", filters)

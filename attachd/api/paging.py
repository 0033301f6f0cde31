# SPDX-License-Identifier: Apache-2.0
"""Parameters that lists have in common: limit, marker, offset, sort, filters."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from attachd import exception
from attachd.api import endpoint, validation
from attachd.api import microversions as mv
from attachd.conf import CONF
from attachd.db.engine.paging import Direction, NamePage, Page

PARAMETERS = frozenset({"limit", "marker", "offset", "sort", "sort_key", "sort_dir"})
ALL_PROJECTS = "all_tenants"
WITH_COUNT: Final = "with_count"

PAGE_PARAMETERS: Final[Mapping[str, validation.Schema]] = MappingProxyType(
    {
        "limit": {
            "type": "integer",
            "minimum": 0,
            "maximum": 2**31 - 1,
            "description": "The maximum number of items on a page.",
        },
        "marker": {"type": "string", "description": "The last id of the previous page."},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "maximum": 2**31 - 1,
            "description": "The number of items to skip.",
        },
        "sort": {
            "type": "string",
            "description": "The sort keys: `key:asc,another:desc`; instead of the next two.",
        },
        "sort_key": {"type": "string", "description": "The sort key."},
        "sort_dir": {"enum": ["asc", "desc"], "description": "The sort direction."},
    }
)
"""The documentation of the parameters of a page."""

NAME_PAGE_PARAMETERS: Final[Mapping[str, validation.Schema]] = MappingProxyType(
    {
        "limit": PAGE_PARAMETERS["limit"],
        "marker": {"type": "string", "description": "The last name of the previous page."},
        "offset": PAGE_PARAMETERS["offset"],
        WITH_COUNT: validation.query_flag("Return the number of items on all pages."),
    }
)
"""The documentation of the parameters of a page of a list that is sorted by names."""

ALL_PROJECTS_PARAMETER: Final[Mapping[str, validation.Schema]] = MappingProxyType(
    {
        ALL_PROJECTS: validation.query_flag(
            "Whether to list those of all projects, for administrators; others get their own."
        )
    }
)

_OTHERS = PARAMETERS | {ALL_PROJECTS}
_DIRECTIONS: Mapping[str, Direction] = MappingProxyType({"asc": "asc", "desc": "desc"})
_LARGEST_OFFSET = 2**31 - 1


def read(
    query: Mapping[str, str], sort_keys: Mapping[str, str], default_key: str = "created_at"
) -> Page:
    """Parse the parameters of a page.

    :param sort_keys: columns by their names on the wire
    :param default_key: one of these names
    :raises BadRequest: naming the parameter that is wrong
    """
    limit = _number(query, "limit", CONF.api.max_limit)
    return Page(
        limit=min(limit, CONF.api.max_limit),
        marker=query.get("marker") or None,
        offset=_number(query, "offset", 0),
        sort=tuple(_sort(query, sort_keys, default_key)),
    )


def read_by_name(query: Mapping[str, str]) -> NamePage:
    """Parse the parameters of a page of a list that is sorted by names.

    :raises BadRequest: naming the parameter that is wrong
    """
    page = read(query, {"created_at": "created_at"})
    return NamePage(page.limit, page.marker, page.offset)


def pop_with_count(parameters: dict[str, str], version: mv.Version) -> bool:
    """Remove ``with_count`` from the parameters of a list; return whether it is requested.

    Before 3.45 it is an unknown filter.
    """
    return version >= mv.SUPPORT_COUNT_INFO and validation.parse_bool(
        WITH_COUNT, parameters.pop(WITH_COUNT, "false")
    )


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:  # noqa: PLR2004
        raise exception.BadRequest(
            reason=f"{name} must be a whole number that is not negative, not {text[:100]!r}."
        )
    return min(int(text), _LARGEST_OFFSET)


def _sort(
    query: Mapping[str, str], known: Mapping[str, str], default_key: str
) -> list[tuple[str, Direction]]:
    if "sort" in query and ("sort_key" in query or "sort_dir" in query):
        raise exception.BadRequest(
            reason="The 'sort_key' and 'sort_dir' parameters are deprecated and cannot be used "
            "with the 'sort' parameter."
        )
    default = f"{query.get('sort_key', default_key)}:{query.get('sort_dir', 'desc')}"
    pairs: dict[str, Direction] = {}
    for part in query.get("sort", default).split(","):
        key, _, direction = (piece.strip() for piece in part.partition(":"))
        direction = direction or "desc"
        if key not in known:
            raise exception.BadRequest(
                reason=f"sort key {key[:100]!r} is none of {', '.join(sorted(known))}."
            )
        if direction not in _DIRECTIONS:
            raise exception.BadRequest(
                reason=f"sort direction {direction[:100]!r} is neither asc nor desc."
            )
        # The first mention of a key counts.
        pairs.setdefault(known[key], _DIRECTIONS[direction])
    return list(pairs.items())


def filters(
    query: Mapping[str, str], known: Collection[str], version: mv.Version
) -> dict[str, str]:
    """Return the filters among the parameters.

    :param known: the filters of this list
    :raises BadRequest: a filter is unknown; before 3.31 it is ignored
    """
    asked = {key: text for key, text in query.items() if key not in _OTHERS}
    unknown = unknown_filters(query, known)
    if unknown and version >= mv.RESOURCE_FILTER:
        listed = ",".join(key[:100] for key in unknown)
        raise exception.BadRequest(reason=f"Invalid filters {listed} are found in query options.")
    return {key: value for key, value in asked.items() if key in known}


def unknown_filters(query: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return the parameters that are neither a filter of this list nor common to all lists."""
    return [key for key in query if key not in _OTHERS and key not in known]


def project(context: Any, query: Mapping[str, str]) -> str | None:
    """Return the project to list; None, for administrators on request: all projects.

    The request of another caller for all projects is ignored, not refused.
    """
    if not context.is_admin:
        project_id: str = context.project_id or ""  # Without a project the list is empty.
        return project_id
    all_projects = validation.parse_bool(ALL_PROJECTS, query.get(ALL_PROJECTS, "false"))
    return None if all_projects else context.project_id


def next_link(
    made: endpoint.Links,
    path: str,
    query: Mapping[str, str],
    requested: Page | NamePage,
    page: Sequence[Mapping[str, object]],
    key: str = "id",
) -> list[endpoint.Link]:
    """Return the link to the next page; none if this page is not full.

    :param key: by which the items are sorted and found
    """
    if not page or len(page) < requested.limit:
        return []
    return made.next(path, query, str(page[-1][key]))

# SPDX-License-Identifier: Apache-2.0
"""Filters of lists of volumes; api/filter_register.py registers them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from attachd import exception
from attachd.api import filter_register, paging, validation
from attachd.api import microversions as mv
from attachd.context import RequestContext
from attachd.db.volumes.volume_queries import Filters

_IMAGE: Final = "glance_metadata"
"""Known since 3.4; since 3.31, when filters are checked, as the register allows."""

_NOT_HERE: Final = frozenset({"migration_status", "group_id"})
"""Fields that no volume of this service has: no volume passes such a filter."""

_LATER: Final = frozenset({"created_at", "updated_at", "consumes_quota"})
"""Filters of 3.60 and 3.65, which are accepted since filters are checked (3.31)."""

_NOT_BOOTABLE: Final = frozenset({"false", "False", "FALSE"})
"""Values that selected volumes that are not bootable before 3.2; all others selected the rest."""

QUERY_PARAMETERS: Final = {
    **paging.PAGE_PARAMETERS,
    **paging.ALL_PROJECTS_PARAMETER,
    **filter_register.VOLUME.parameters,
}
"""Schemas of the query parameters of a list."""


def parse(ctx: RequestContext, query: Mapping[str, str], version: mv.Version) -> Filters | None:
    """Return the filters of a request in terms of the database.

    :returns: None if no volume can pass
    :raises BadRequest: a filter is unknown, or its value is invalid
    """
    requested = _known_filters(ctx, query, version)
    if requested is None:
        return None
    counted = validation.parse_bool("consumes_quota", requested.pop("consumes_quota", "true"))
    project = paging.project(ctx, query)
    if (
        not counted
        or _NOT_HERE & requested.keys()
        or not _is_project_allowed(project, requested.get("project_id"))
    ):
        return None
    filters: dict[str, Any] = {} if project is None else {"project_id": project}
    for name, text in requested.items():
        if name.endswith("~"):
            filters.setdefault("like", {})[name[:-1]] = text
        elif name in {"created_at", "updated_at"}:
            filters.setdefault("times", []).extend(filter_register.compare_times(name, text))
        else:
            column, convert = _CONVERTED.get(name, (name, _text))
            filters[column] = convert(name, text)
    return cast("Filters", filters)


def _known_filters(
    ctx: RequestContext, query: Mapping[str, str], version: mv.Version
) -> dict[str, str] | None:
    """Return the filters as a version understands them; None: no volume passes."""
    known = _known(ctx, version)
    is_unchecked = ctx.is_admin and (ctx.attachd_version is None or version < mv.RESOURCE_FILTER)
    if is_unchecked and paging.unknown_filters(query, known):
        # Administrators' filters apply unchecked, and no volume has such a field.
        return None
    requested = paging.filters(query, known, version)
    for name in _unknown_before(version):
        requested.pop(name, None)
    if "bootable" in requested and version < mv.VOLUME_LIST_BOOTABLE:
        requested["bootable"] = str(requested["bootable"] not in _NOT_BOOTABLE)
    return requested


def _unknown_before(version: mv.Version) -> frozenset[str]:
    """Return the filters that a version ignores because they came later and are not checked."""
    if version >= mv.RESOURCE_FILTER:
        return frozenset()
    steps = ((mv.VOLUME_LIST_GLANCE_METADATA, _IMAGE), (mv.VOLUME_LIST_GROUP, "group_id"))
    return _LATER | {name for since, name in steps if version < since}


def _known(ctx: RequestContext, version: mv.Version) -> frozenset[str]:
    known = filter_register.allowed(ctx, filter_register.VOLUME, version)
    return known if version >= mv.RESOURCE_FILTER else known | {_IMAGE}


def _is_project_allowed(project: str | None, requested: str | None) -> bool:
    return project is None or requested is None or project == requested


def _text(_name: str, text: str) -> str:
    return text


def _size(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004  as columns
        raise _invalid(name, text, "It must be a whole number of GiB.")
    return int(text)


def _invalid(name: str, text: str, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=name, value=validation.abbreviate(text), reason=reason)


_CONVERTED: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = MappingProxyType(
    {
        "size": ("size_gib", _size),
        "bootable": ("bootable", validation.parse_bool),
        "multiattach": ("multiattach", validation.parse_bool),
        "metadata": ("metadata", validation.parse_pairs),
        "glance_metadata": ("image_metadata", validation.parse_pairs),
    }
)

# SPDX-License-Identifier: Apache-2.0
"""What the filters of lists of volumes mean; registered in api/filters.py."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from attachd import exception
from attachd.api import fields, paging, times, validation
from attachd.api import filters as register
from attachd.api import microversions as mv
from attachd.context import RequestContext
from attachd.db.volume_queries import Filters

_IMAGE: Final = "glance_metadata"
"""Known since 3.4, and since filters are checked, which is 3.31, to whom the register says."""

_NOT_HERE: Final = frozenset({"migration_status", "group_id"})
"""What no volume of this service has: nothing has the value that is asked for."""

_LATER: Final = frozenset({"created_at", "updated_at", "consumes_quota"})
"""Filters that came with 3.60 and 3.65, and are known since filters are checked, which is 3.31."""

_NOT_BOOTABLE: Final = frozenset({"false", "False", "FALSE"})
"""What asked for volumes nobody can boot from before 3.2; everything else asked for the others."""

QUERY_PARAMETERS: Final = {
    **paging.PAGE_PARAMETERS,
    **paging.ALL_PROJECTS_PARAMETER,
    **register.VOLUME.parameters,
}
"""What clients are told of the parameters of a list."""


def parse(ctx: RequestContext, query: Mapping[str, str], version: mv.Version) -> Filters | None:
    """Turn the filters among query parameters into what the database is asked.

    :returns: None if surely no volume passes
    :raises BadRequest: a filter is not known, or its value makes no sense
    """
    asked = _known_filters(ctx, query, version)
    if asked is None:
        return None
    counted = fields.parse_bool("consumes_quota", asked.pop("consumes_quota", "true"))
    project = paging.project(ctx, query)
    if (
        not counted
        or _NOT_HERE & asked.keys()
        or not _is_project_allowed(project, asked.get("project_id"))
    ):
        return None
    filters: dict[str, Any] = {} if project is None else {"project_id": project}
    for name, text in asked.items():
        if name.endswith("~"):
            filters.setdefault("like", {})[name[:-1]] = text
        elif name in {"created_at", "updated_at"}:
            filters.setdefault("times", []).extend(times.comparisons(name, text))
        else:
            column, convert = _CONVERTED.get(name, (name, _text))
            filters[column] = convert(name, text)
    return cast("Filters", filters)


def _known_filters(
    ctx: RequestContext, query: Mapping[str, str], version: mv.Version
) -> dict[str, str] | None:
    """Return the filters as they were understood in a version; None: no volume passes."""
    known = _known(ctx, version)
    if ctx.is_admin and version < mv.RESOURCE_FILTER and paging.unknown_filters(query, known):
        # Whatever an administrator asked for was looked for; others' unknown filters were ignored.
        return None
    asked = paging.filters(query, known, version)
    for name in _unknown_before(version):
        asked.pop(name, None)
    if "bootable" in asked and version < mv.VOLUME_LIST_BOOTABLE:
        asked["bootable"] = str(asked["bootable"] not in _NOT_BOOTABLE)
    return asked


def _unknown_before(version: mv.Version) -> frozenset[str]:
    """Return the filters that were ignored: later ones, as long as filters were not checked."""
    if version >= mv.RESOURCE_FILTER:
        return frozenset()
    steps = ((mv.VOLUME_LIST_GLANCE_METADATA, _IMAGE), (mv.VOLUME_LIST_GROUP, "group_id"))
    return _LATER | {name for since, name in steps if version < since}


def _known(ctx: RequestContext, version: mv.Version) -> frozenset[str]:
    known = register.allowed(ctx, register.VOLUME, version)
    return known if version >= mv.RESOURCE_FILTER else known | {_IMAGE}


def _is_project_allowed(project: str | None, asked: str | None) -> bool:
    return project is None or asked is None or project == asked


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
        "bootable": ("bootable", fields.parse_bool),
        "multiattach": ("multiattach", fields.parse_bool),
        "metadata": ("metadata", fields.parse_pairs),
        "glance_metadata": ("image_metadata", fields.parse_pairs),
    }
)

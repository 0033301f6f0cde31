# SPDX-License-Identifier: Apache-2.0
"""What lists of volumes can be filtered by; used by lists.py, told by GET /resource_filters."""

from collections.abc import Callable, Mapping
import datetime
from types import MappingProxyType
from typing import Any, Final, cast

from oslo_utils import timeutils

from attachd import exception
from attachd.api import fields, paging, validation
from attachd.api import microversions as mv
from attachd.context import RequestContext
from attachd.db.volume_queries import Comparison, Filters

FOR_ALL: Final = (
    "name",
    "status",
    "metadata",
    "bootable",
    "migration_status",
    "availability_zone",
    "group_id",
    "size",
    "created_at",
    "updated_at",
    "consumes_quota",
    "name~",
    "description~",
)
"""Filters that every caller may use; those with a tilde match a part."""

FOR_ADMINS: Final = (
    "id",
    "project_id",
    "user_id",
    "host",
    "volume_type_id",
    "attach_status",
    "multiattach",
    "status~",
    "host~",
    "availability_zone~",
)

_NOT_HERE: Final = frozenset({"migration_status", "group_id"})
"""What no volume of this service has: nothing has the value that is asked for."""

_VERBS: Final = ("gt", "gte", "eq", "neq", "lt", "lte")


def parse(ctx: RequestContext, query: Mapping[str, str], version: mv.Version) -> Filters | None:
    """Turn the filters among query parameters into what the database is asked.

    :returns: None if surely no volume passes
    :raises BadRequest: a filter is not known, or its value makes no sense
    """
    asked = paging.filters(query, _known(ctx, version), version)
    counted = fields.truth("consumes_quota", asked.pop("consumes_quota", "true"))
    project = paging.project(ctx, query)
    if not counted or _NOT_HERE & asked.keys() or not _same(project, asked.get("project_id")):
        return None
    filters: dict[str, Any] = {} if project is None else {"project_id": project}
    for name, text in asked.items():
        if name.endswith("~"):
            filters.setdefault("like", {})[name[:-1]] = text
        elif name in {"created_at", "updated_at"}:
            filters.setdefault("times", []).extend(_times(name, text))
        else:
            column, convert = _CONVERTED.get(name, (name, _text))
            filters[column] = convert(name, text)
    return cast("Filters", filters)


def _known(ctx: RequestContext, version: mv.Version) -> set[str]:
    known = {*FOR_ALL, *FOR_ADMINS} if ctx.is_admin else set(FOR_ALL)
    if version < mv.LIKE_FILTER:
        return {name for name in known if not name.endswith("~")}
    return known


def _same(project: str | None, asked: str | None) -> bool:
    return project is None or asked is None or project == asked


def _text(_name: str, text: str) -> str:
    return text


def _size(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004  as columns
        raise _wrong(name, text, "It must be a whole number of GiB.")
    return int(text)


def _times(name: str, text: str) -> list[Comparison]:
    """Read ``gt:2026-01-01T00:00:00,lte:2026-02-01T00:00:00``."""
    found = []
    for part in text.split(","):
        verb, _, moment = part.partition(":")
        if verb not in _VERBS:
            raise _wrong(name, text, f"Its operator is none of {', '.join(_VERBS)}.")
        found.append(Comparison(name, verb, _moment(name, moment)))
    return found


def _moment(name: str, text: str) -> datetime.datetime:
    try:
        return timeutils.normalize_time(timeutils.parse_isotime(text))
    except (ValueError, OverflowError):
        raise _wrong(name, text, "The time must be in ISO 8601 format.") from None


def _wrong(name: str, text: str, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=name, value=validation.shown(text), reason=reason)


_CONVERTED: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = MappingProxyType(
    {
        "size": ("size_gib", _size),
        "bootable": ("bootable", fields.truth),
        "multiattach": ("multiattach", fields.truth),
        "metadata": ("metadata", fields.pairs),
    }
)

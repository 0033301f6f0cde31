# SPDX-License-Identifier: Apache-2.0
"""The filters of each list, and which callers may use them.

``GET /resource_filters`` shows this register.  Each list converts the requested filters, which are
strings, into conditions of its query; a filter whose name ends in a tilde matches a part of the
value.
"""

from collections.abc import Mapping, Sequence
import datetime
import functools
import json
from pathlib import Path
import re
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from oslo_log import log
from oslo_utils import timeutils

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import paging, validation
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.engine.paging import OPERATORS, Comparison

LOG = log.getLogger(__name__)

LIKE: Final = "~"
"""The suffix, since 3.34, of a filter that matches a part of the value."""


class Resource(NamedTuple):
    """The filters of one list.

    :ivar default: for all callers, unless the operator's file lists others
    :ivar admin_only: for administrators, and for all callers if the operator's file lists them
    :ivar limits_admins: whether administrators have the same filters as other callers
    """

    name: str
    default: tuple[str, ...]
    admin_only: tuple[str, ...] = ()
    limits_admins: bool = False

    @property
    def known(self) -> frozenset[str]:
        """All filters of the list."""
        return frozenset({*self.default, *self.admin_only})

    @property
    def parameters(self) -> dict[str, validation.Schema]:
        """The documentation of its filters as query parameters."""
        requested = {
            name: f"Those whose {name} is this." for name in (*self.default, *self.admin_only)
        }
        requested |= {
            name: f"Those whose {name.removesuffix(LIKE)} has this in it."
            for name in requested
            if name.endswith(LIKE)
        }
        return {name: {"type": "string", "description": text} for name, text in requested.items()}


VOLUME: Final = Resource(
    "volume",
    (
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
    ),
    (
        "id",
        "project_id",
        "user_id",
        "host",
        "volume_type_id",
        "attach_status",
        "multiattach",
        "glance_metadata",
        "name~",
        "description~",
        "status~",
        "host~",
        "availability_zone~",
    ),
)
SNAPSHOT: Final = Resource(
    "snapshot",
    ("name", "status", "volume_id", "metadata", "availability_zone", "consumes_quota"),
    (
        *("id", "project_id", "user_id", "host"),
        *("name~", "description~", "status~", "volume_id~"),
    ),
)
ATTACHMENT: Final = Resource(
    "attachment",
    ("volume_id", "status", "instance_id", "attach_status"),
    (
        "attached_host",
        "project_id",
        "volume_id~",
        "status~",
        "instance_id~",
        "attach_status~",
        "attached_host~",
    ),
)
MESSAGE: Final = Resource(
    "message",
    ("resource_uuid", "resource_type", "event_id", "request_id", "message_level"),
    ("project_id",),
)
POOL: Final = Resource("pool", ("name", "volume_type"), limits_admins=True)
TYPE: Final = Resource(
    "volume_type",
    ("is_public", "extra_specs"),
    ("id", "name", "description", "qos_specs_id"),
)

RESOURCES: Final[Mapping[str, Resource]] = MappingProxyType(
    {resource.name: resource for resource in (VOLUME, SNAPSHOT, ATTACHMENT, MESSAGE, POOL, TYPE)}
)


def requested(
    ctx: RequestContext, resource: Resource, query: Mapping[str, str], version: mv.Version
) -> dict[str, str]:
    """Return the filters among the parameters of a request.

    :raises BadRequest: a filter is unknown or not allowed; before 3.31 it is ignored
    """
    return paging.filters(query, allowed(ctx, resource, version), version)


def allowed(ctx: RequestContext, resource: Resource, version: mv.Version) -> frozenset[str]:
    """Return the filters of a list that the caller may use."""
    if ctx.is_admin and not resource.limits_admins:
        names = resource.known
    else:
        names = frozenset(for_members(resource))
        # A filter on a part of the value includes the filter on the whole value.
        names |= resource.known & {name.removesuffix(LIKE) for name in names}
    if version < mv.LIKE_FILTER:
        return frozenset(name for name in names if not name.endswith(LIKE))
    return names


def for_members(resource: Resource) -> tuple[str, ...]:
    """Return the filters of a list that callers other than administrators may use."""
    by_resource = _by_resource()
    return resource.default if by_resource is None else by_resource.get(resource.name, ())


def load() -> None:
    """Read the operator's file, if there is one, to report a mistake at the start.

    :raises ConfigurationError: naming the mistake
    """
    _by_resource()


@functools.cache
def _by_resource() -> Mapping[str, tuple[str, ...]] | None:
    """Return the content of the operator's file, the known filters; None without a file."""
    path = CONF.api.resource_query_filters_file
    return None if path is None else read(Path(path))


def reset() -> None:
    """Read the file again at the next use; for tests that change the configuration."""
    _by_resource.cache_clear()


def read(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Read an operator's file.

    :returns: filters by resource; unknown ones are left out, with a warning
    :raises ConfigurationError: the file is missing or malformed
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _error(path, str(error)) from error
    if not isinstance(content, dict) or not all(map(_is_list_of_names, content.values())):
        raise _error(path, 'it has to look like {"volume": ["name", "status"]}.')
    return {name: _known_filters(path, name, names) for name, names in content.items()}


def _error(path: Path, reason: str) -> exception.ConfigurationError:
    return exception.ConfigurationError(
        reason=f"[api]resource_query_filters_file, {path}, cannot be used: {reason}"
    )


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(name, str) and re.fullmatch(r"\w{1,64}~?", name, re.ASCII) for name in value
    )


def _known_filters(path: Path, name: str, names: Sequence[str]) -> tuple[str, ...]:
    if name not in RESOURCES:
        return ()  # a list that this service does not have
    known = RESOURCES[name].known
    if unknown := sorted(set(names) - known):
        LOG.warning("%s: %s has no filters %s", path, name, ", ".join(unknown))
    return tuple(dict.fromkeys(name for name in names if name in known))


_MAX_COMPARISONS: Final = 100
"""Upper limit of comparisons in one filter; SQLite limits the size of a statement."""


def compare_times(name: str, text: str) -> list[Comparison]:
    """Parse ``gt:2026-01-01T00:00:00,lte:2026-02-01T00:00:00``.

    :param name: of the filter and of the column
    :raises InvalidInput: the text has another form
    """
    terms = text.split(",")
    if len(terms) > _MAX_COMPARISONS:
        raise _invalid(name, text, f"It has more than {_MAX_COMPARISONS} times.")
    comparisons = []
    for term in terms:
        verb, _, time_text = term.partition(":")
        if verb not in OPERATORS:
            raise _invalid(name, text, f"Its operator is none of {', '.join(OPERATORS)}.")
        comparisons.append(Comparison(name, verb, _parse_time(name, time_text)))
    return comparisons


def _parse_time(name: str, text: str) -> datetime.datetime:
    try:
        return timeutils.normalize_time(timeutils.parse_isotime(text))
    except (ValueError, OverflowError):
        raise _invalid(name, text, "The time must be in ISO 8601 format.") from None


def _invalid(name: str, text: str, reason: str) -> exception.InvalidInput:
    return exception.InvalidInput(field=name, value=validation.abbreviate(text), reason=reason)

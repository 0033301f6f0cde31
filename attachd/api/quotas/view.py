# SPDX-License-Identifier: Apache-2.0
"""How quotas look on the wire; used by the handlers of quotas and by those of limits."""

from collections.abc import Iterable, Mapping
from typing import Final, TypedDict

from attachd.api import fields
from attachd.api.endpoint import EndpointDoc
from attachd.db import quotas
from attachd.db.quotas import OF_A_TYPE, UNLIMITED, Limits, Used


class Usage(TypedDict):
    """A limit and what is used of it."""

    limit: int
    in_use: int
    reserved: int


LIMITS_DOC: Final = EndpointDoc({"quota_set": dict[str, int]})
CLASS_DOC: Final = EndpointDoc({"quota_class_set": dict[str, int]})
NAMED_DOC: Final = EndpointDoc({"quota_set": dict[str, int | str]})
NAMED_CLASS_DOC: Final = EndpointDoc({"quota_class_set": dict[str, int | str]})
SHOW_DOC: Final = EndpointDoc(
    {"quota_set": dict[str, int | str | Usage]},
    {"usage": fields.query_flag("Whether to answer what is used, too.")},
)
"""What answers have: limits by name, and where these are shown the id of whose they are."""


def resource_names(type_names: Iterable[str]) -> list[str]:
    """Return the names of all that is limited, where there are types of these names."""
    of_types = [quotas.of_type(part, name) for name in type_names for part in OF_A_TYPE]
    return [*quotas.configured(), *of_types]


def effective(names: Iterable[str], *set_limits: Limits) -> dict[str, int]:
    """Return the limits that hold, where the later ones of ``set_limits`` come first."""
    known = dict(quotas.configured())
    for each in set_limits:
        known.update(each)
    return {name: known.get(name, UNLIMITED) for name in names}


def with_usage(limits: Limits, used: Mapping[str, Used]) -> dict[str, Usage]:
    """Show limits with what is used of them; what a volume grows by is reserved."""
    nothing = Used(0)
    return {
        name: {
            "limit": limit,
            "in_use": used.get(name, nothing).there,
            "reserved": used.get(name, nothing).coming,
        }
        for name, limit in limits.items()
    }

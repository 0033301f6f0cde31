# SPDX-License-Identifier: Apache-2.0
"""Quotas as answers show them; also used for /limits."""

from collections.abc import Iterable, Mapping
from typing import Final, TypedDict

from attachd.api import validation
from attachd.api.endpoint import EndpointDoc
from attachd.context import RequestContext
from attachd.db import quotas
from attachd.db.quotas import TYPE_RESOURCES, UNLIMITED, Limits, ResourceUsage


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
    {"usage": validation.query_flag("Return the usage as well.")},
)
"""Answers: limits by name, and the id of the project or class if they are shown."""


def resource_names(ctx: RequestContext, type_names: Iterable[str]) -> list[str]:
    """Return the names of all limited resources, with those of volume types of these names.

    Attachments are limited by attachd only: clients of the Block Storage API are not shown them.
    """
    of_types = [quotas.type_resource(part, name) for name in type_names for part in TYPE_RESOURCES]
    hidden = {quotas.ATTACHMENTS} if ctx.attachd_version is None else ()
    return [*(name for name in quotas.configured_limits() if name not in hidden), *of_types]


def effective(names: Iterable[str], *set_limits: Limits) -> dict[str, int]:
    """Return the limits that apply; later ones of ``set_limits`` win."""
    known = dict(quotas.configured_limits())
    for limits in set_limits:
        known.update(limits)
    return {name: known.get(name, UNLIMITED) for name in names}


def with_usage(limits: Limits, used: Mapping[str, ResourceUsage]) -> dict[str, Usage]:
    """Return limits with their usage; the growth of volumes being extended is reserved."""
    nothing = ResourceUsage(0)
    return {
        name: {
            "limit": limit,
            "in_use": used.get(name, nothing).in_use,
            "reserved": used.get(name, nothing).coming,
        }
        for name, limit in limits.items()
    }

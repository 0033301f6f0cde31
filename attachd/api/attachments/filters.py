# SPDX-License-Identifier: Apache-2.0
"""What a list of attachments can be filtered and sorted by; used by handlers.py."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attachd import states
from attachd.api import filters as register
from attachd.api import microversions as mv
from attachd.api import paging
from attachd.api.fields import canonical
from attachd.context import RequestContext
from attachd.db.attachment_queries import Filters

_COLUMNS = MappingProxyType(
    {"volume_id": "volume_id", "instance_id": "instance_uuid", "attached_host": "host"}
)
_IDS = ("volume_id", "instance_id")
_STATES = ("status", "attach_status")
_LIKE = register.LIKE

SORT_KEYS = MappingProxyType(
    {
        "id": "id",
        "volume_id": "volume_id",
        "instance_id": "instance_uuid",
        "instance_uuid": "instance_uuid",
        "attached_host": "host",
        "created_at": "created_at",
        "updated_at": "updated_at",
    }
)


def read(ctx: RequestContext, query: Mapping[str, str], version: mv.Version) -> Filters:
    """Return the filters that a request asks for, and the caller's project.

    :raises BadRequest: there is an unknown filter
    """
    asked = register.asked(ctx, register.ATTACHMENT, query, version)
    project_id = paging.project(ctx, query)
    named = asked.pop("project_id", None) or project_id
    if not ctx.is_admin and named != project_id:
        return {"states": frozenset()}
    return _wanted(named, asked)


def _wanted(project_id: str | None, asked: Mapping[str, str]) -> Filters:
    found: dict[str, Any] = {} if project_id is None else {"project_id": project_id}
    like: dict[str, str] = {}
    for name, value in asked.items():
        if name.rstrip(_LIKE) in _STATES:
            states_so_far = found.get("states", frozenset(states.AttachmentState))
            found["states"] = states_so_far & _in_state(name, value)
        elif name.endswith(_LIKE):
            like[_COLUMNS[name.rstrip(_LIKE)]] = value
        else:
            found[_COLUMNS[name]] = canonical(value) if name in _IDS else value
    if like:
        found["like"] = like
    filters: Filters = found  # type: ignore[assignment]  # built key by key
    return filters


def _in_state(name: str, value: str) -> frozenset[states.AttachmentState]:
    if not name.endswith(_LIKE):
        return states.attachment_states(value)
    return frozenset(each for each in states.AttachmentState if value in each.wire)

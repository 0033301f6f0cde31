# SPDX-License-Identifier: Apache-2.0
"""Filters and sort keys of lists of attachments."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attachd import exception, states
from attachd.api import filter_register, paging, validation
from attachd.api import microversions as mv
from attachd.context import RequestContext
from attachd.db.attachments.attachment_queries import Filters

_COLUMNS = MappingProxyType(
    {
        "volume_id": "volume_id",
        "instance_id": "instance_uuid",
        "attached_host": "host",
        "agent": "agent",
        "move_from": "move_from",
    }
)
_TIMES = ("created_at", "updated_at", "attached_at")
_IDS = ("volume_id", "instance_id", "move_from")
_STATES = ("status", "attach_status")
_LIKE = filter_register.LIKE

_AGENT = "attachd 1.0: attachments on the agent of this host."
_MOVE_FROM = "attachd 1.0: the attachment that takes over from this one."
_COMPARED = (
    "attachd 1.0: attachments whose {} compares as given: `gt:TIME`, or gte, eq, neq, lt, lte; "
    "separate several with commas."
)
ATTACHD_FILTERS: Mapping[str, validation.Schema] = MappingProxyType(
    {
        "agent": {"type": "string", "description": _AGENT},
        "move_from": {"type": "string", "description": _MOVE_FROM},
        **{name: {"type": "string", "description": _COMPARED.format(name)} for name in _TIMES},
    }
)
"""Filters under attachd 1.0, with the schema that clients are shown."""

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


def parse(ctx: RequestContext, query: Mapping[str, str], version: mv.Version) -> Filters:
    """Return the filters of a request, with the caller's project.

    :raises BadRequest: there is an unknown filter
    :raises InvalidInput: the value of a filter is invalid
    """
    known = ATTACHD_FILTERS if ctx.attachd_version is not None else {}
    usual = {name: value for name, value in query.items() if name not in known}
    requested = filter_register.requested(ctx, filter_register.ATTACHMENT, usual, version)
    requested |= {name: query[name] for name in known if name in query}
    if ctx.attachd_version is not None:
        _check_states(requested)
    project_id = paging.project(ctx, query)
    named = requested.pop("project_id", None) or project_id
    if not ctx.is_admin and named != project_id:
        return {"states": frozenset()}
    return _to_columns(named, requested)


def _to_columns(project_id: str | None, requested: Mapping[str, str]) -> Filters:
    filters: dict[str, Any] = {} if project_id is None else {"project_id": project_id}
    like: dict[str, str] = {}
    for name, value in requested.items():
        if name.rstrip(_LIKE) in _STATES:
            states_so_far = filters.get("states", frozenset(states.AttachmentState))
            filters["states"] = states_so_far & _in_state(name, value)
        elif name in _TIMES:
            filters.setdefault("times", []).extend(filter_register.compare_times(name, value))
        elif name.endswith(_LIKE):
            like[_COLUMNS[name.rstrip(_LIKE)]] = value
        else:
            filters[_COLUMNS[name]] = validation.canonical(value) if name in _IDS else value
    if like:
        filters["like"] = like
    typed: Filters = filters  # type: ignore[assignment]  # built key by key
    return typed


def _check_states(requested: Mapping[str, str]) -> None:
    """Refuse an unknown status; without attachd 1.0 the result is empty instead."""
    known = sorted({state.wire for state in states.AttachmentState})
    for name in _STATES:
        if name in requested and requested[name] not in known:
            raise exception.InvalidInput(
                field=name,
                value=validation.abbreviate(requested[name]),
                reason=f"It must be one of {', '.join(known)}.",
            )


def _in_state(name: str, value: str) -> frozenset[states.AttachmentState]:
    if not name.endswith(_LIKE):
        return states.attachment_states(value)
    return frozenset(state for state in states.AttachmentState if value in state.wire)

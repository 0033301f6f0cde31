# SPDX-License-Identifier: Apache-2.0
"""Filters and sort keys of lists of attachments."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attachd import exception, states
from attachd.api import filter_register, paging, validation
from attachd.api import microversions as mv
from attachd.context import RequestContext
from attachd.db.attachments import deleted_attachments
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
_CONDITION: Final = "condition"
_CONDITIONS: Final = ("degraded", "failed", "ok")
_LIKE = filter_register.LIKE

_AGENT = "attachd 1.0: attachments on the agent of this host."
_MOVE_FROM = "attachd 1.0: the attachment that takes over from this one."
_OBSERVED = "attachd 1.0: attachments that are attached, in this condition."
_COMPARED = (
    "attachd 1.0: attachments whose {} compares as given: `gt:TIME`, or gte, eq, neq, lt, lte; "
    "separate several with commas."
)
ATTACHD_FILTERS: Mapping[str, validation.Schema] = MappingProxyType(
    {
        "agent": {"type": "string", "description": _AGENT},
        "move_from": {"type": "string", "description": _MOVE_FROM},
        _CONDITION: {"enum": [*_CONDITIONS], "description": _OBSERVED},
        **{name: {"type": "string", "description": _COMPARED.format(name)} for name in _TIMES},
    }
)
"""Filters under attachd 1.0, with the schema that clients are shown."""
DELETED: Final = "deleted"
_DETACHED_AT: Final = "detached_at"
OF_DELETED: Mapping[str, validation.Schema] = MappingProxyType(
    {
        DELETED: validation.query_flag(
            "attachd 1.1. Whether to list deleted attachments, instead of those that exist."
        ),
        _DETACHED_AT: {
            "type": "string",
            "description": f"attachd 1.1, with `{DELETED}`: {_COMPARED.format(_DETACHED_AT)}",
        },
    }
)
"""Parameters of lists of deleted attachments, under attachd 1.1."""
DELETED_SORT_KEYS = MappingProxyType({_DETACHED_AT: "created_at"})
_FILTERS_OF_DELETED: Final = ("volume_id", "project_id", _DETACHED_AT)

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


def pop_deleted(ctx: RequestContext, parameters: dict[str, str]) -> bool:
    """Remove ``deleted`` from the parameters of a list; return whether it is requested.

    :raises InvalidInput: it is neither true nor false
    """
    if ctx.attachd_version is None or ctx.attachd_version < mv.ATTACHD_1_1:
        return False
    return validation.parse_bool(DELETED, parameters.pop(DELETED, "false"))


def parse_deleted(
    ctx: RequestContext, query: Mapping[str, str]
) -> deleted_attachments.Filters | None:
    """Return the filters of a list of deleted attachments, with the caller's project.

    :returns: None: the caller may see none of them
    :raises BadRequest: there is an unknown filter
    :raises InvalidInput: the value of a filter is invalid
    """
    if unknown := paging.unknown_filters(query, _FILTERS_OF_DELETED):
        raise exception.BadRequest(
            reason=f"Deleted attachments have no filter {', '.join(unknown)[:100]!r}, but these: "
            f"{', '.join(_FILTERS_OF_DELETED)}."
        )
    own = paging.project(ctx, query)
    project_id = query.get("project_id") or own
    if not ctx.is_admin and project_id != own:
        return None
    matching: deleted_attachments.Filters = {}
    if project_id is not None:
        matching["project_id"] = project_id
    if "volume_id" in query:
        matching["volume_id"] = validation.canonical(query["volume_id"])
    if _DETACHED_AT in query:
        compared = filter_register.compare_times(_DETACHED_AT, query[_DETACHED_AT])
        column = DELETED_SORT_KEYS[_DETACHED_AT]
        matching["times"] = [item._replace(column=column) for item in compared]
    return matching


def _to_columns(project_id: str | None, requested: Mapping[str, str]) -> Filters:
    filters: dict[str, Any] = {} if project_id is None else {"project_id": project_id}
    like: dict[str, str] = {}
    if _CONDITION in requested:
        filters["condition_state"] = requested[_CONDITION]
    for name, value in requested.items():
        if name.rstrip(_LIKE) in {*_STATES, _CONDITION}:
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
    """Refuse an unknown status or condition; without attachd 1.0 the result is empty instead."""
    statuses = sorted({state.wire for state in states.AttachmentState})
    accepted = {**dict.fromkeys(_STATES, statuses), _CONDITION: _CONDITIONS}
    for name, known in accepted.items():
        if name in requested and requested[name] not in known:
            raise exception.InvalidInput(
                field=name,
                value=validation.abbreviate(requested[name]),
                reason=f"It must be one of {', '.join(known)}.",
            )


def _in_state(name: str, value: str) -> frozenset[states.AttachmentState]:
    if name == _CONDITION:
        return frozenset({states.AttachmentState.ATTACHED})
    if not name.endswith(_LIKE):
        return states.attachment_states(value)
    return frozenset(state for state in states.AttachmentState if value in state.wire)

# SPDX-License-Identifier: Apache-2.0
"""Quotas of projects: see, set, forget; classes.py has those that hold for many."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attachd import exception
from attachd.api import fields
from attachd.api.endpoint import endpoint
from attachd.api.quotas import limits, policy, schema, view
from attachd.context import RequestContext
from attachd.db import quotas, types

ITEM = "/os-quota-sets/{target_project_id}"

Body = dict[str, Any]
Query = Mapping[str, str]

_LONGEST_PROJECT = 64
"""Characters of a project's id, as the tables keep it."""

_DOC = view.LIMITS._replace(
    parameters={"skip_validation": fields.query_flag("Although the project has more.")}
)


class _Project(NamedTuple):
    """Whose quotas they are, for policy."""

    project_id: str
    user_id: str | None = None


@endpoint("GET", ITEM, policy=policy.SHOW, doc=view.SHOWN)
def show(ctx: RequestContext, target_project_id: str, query: Query) -> Body:
    """Answer a project's quotas, and what it has used of them if ``usage`` is true."""
    ctx.authorize(policy.SHOW, _Project(target_project_id))
    with_usage = fields.truth("usage", query.get("usage", "false"))
    shown: Body = _limits(ctx, target_project_id)
    if with_usage:
        shown = {**view.with_usage(shown, quotas.used(target_project_id))}
    return {"quota_set": {**shown, "id": target_project_id}}


@endpoint("GET", f"{ITEM}/defaults", policy=policy.SHOW, doc=view.NAMED)
def defaults(ctx: RequestContext, target_project_id: str) -> Body:
    """Answer what holds for a project for which nothing was set."""
    ctx.authorize(policy.SHOW, _Project(target_project_id))
    of_all = quotas.of_class(quotas.DEFAULT_CLASS)
    shown = view.effective(_resources(ctx, target_project_id), of_all)
    return {"quota_set": {**shown, "id": target_project_id}}


@endpoint("PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE, doc=_DOC)
def update(ctx: RequestContext, target_project_id: str, body: Body, query: Query) -> Body:
    """Set some of a project's quotas; below what it has only by ``force``."""
    ctx.authorize(policy.UPDATE, _Project(target_project_id))
    if len(target_project_id) > _LONGEST_PROJECT:
        raise exception.InvalidInput(
            field="project_id",
            value=f"{target_project_id[:_LONGEST_PROJECT]}...",
            reason=f"It has at most {_LONGEST_PROJECT} characters.",
        )
    said = body["quota_set"]
    forced = fields.truth("quota_set.force", said.get("force", False))
    forced = fields.truth("skip_validation", query.get("skip_validation", forced))
    asked = {key: value for key, value in said.items() if key not in schema.NO_LIMITS}
    wanted = limits.wanted(asked, "quota set", _resources(ctx, target_project_id))
    (quotas.store if forced else quotas.store_if_kept)(target_project_id, wanted)
    return {"quota_set": _limits(ctx, target_project_id)}


@endpoint("DELETE", ITEM, policy=policy.DELETE)
def delete(ctx: RequestContext, target_project_id: str) -> None:
    """Have the defaults hold for a project again."""
    ctx.authorize(policy.DELETE, _Project(target_project_id))
    quotas.remove(target_project_id)


def _resources(ctx: RequestContext, project_id: str) -> list[str]:
    """Return what is limited; of the private types, users are told of those of their project."""
    known: types.Filters = {} if ctx.is_admin else {"known_to": project_id}
    return view.resources(types.names(known))


def _limits(ctx: RequestContext, project_id: str) -> dict[str, int]:
    return view.effective(_resources(ctx, project_id), quotas.of_project(project_id))

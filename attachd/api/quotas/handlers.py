# SPDX-License-Identifier: Apache-2.0
"""Endpoints of quota sets and quota classes.

The class ``default`` holds for all projects; no project belongs to another one.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from attachd import exception
from attachd.api import validation
from attachd.api.endpoint import endpoint
from attachd.api.quotas import policy, schema, view
from attachd.context import RequestContext
from attachd.db import quotas
from attachd.db.types import type_store

ITEM = "/os-quota-sets/{target_project_id}"

Body = dict[str, Any]
Query = Mapping[str, str]

_LONGEST_PROJECT = 64
"""Characters of a project id, as the tables store it."""

_UPDATE_DOC = view.LIMITS_DOC._replace(
    parameters={
        "skip_validation": validation.query_flag(
            "Set limits even if the project's usage exceeds them."
        )
    }
)


class _Project(NamedTuple):
    """The project whose quotas a rule is checked for."""

    project_id: str
    user_id: str | None = None


@endpoint("GET", ITEM, policy=policy.SHOW, doc=view.SHOW_DOC)
def show(ctx: RequestContext, target_project_id: str, query: Query) -> Body:
    """Return a project's quotas, with their usage if ``usage`` is true."""
    ctx.authorize(policy.SHOW, _Project(target_project_id))
    with_usage = validation.parse_bool("usage", query.get("usage", "false"))
    shown: Body = _limits(ctx, target_project_id)
    if with_usage:
        shown = {**view.with_usage(shown, quotas.usage(target_project_id))}
    return {"quota_set": {**shown, "id": target_project_id}}


@endpoint("GET", f"{ITEM}/defaults", policy=policy.SHOW, doc=view.NAMED_DOC)
def defaults(ctx: RequestContext, target_project_id: str) -> Body:
    """Return the quotas of a project for which none are set."""
    ctx.authorize(policy.SHOW, _Project(target_project_id))
    of_all = quotas.class_limits(quotas.DEFAULT_CLASS)
    shown = view.effective(_resource_names(ctx, target_project_id), of_all)
    return {"quota_set": {**shown, "id": target_project_id}}


@endpoint("PUT", ITEM, policy=policy.UPDATE, body=schema.UPDATE, doc=_UPDATE_DOC)
def update(ctx: RequestContext, target_project_id: str, body: Body, query: Query) -> Body:
    """Set some of a project's quotas; below its usage only with ``force``."""
    ctx.authorize(policy.UPDATE, _Project(target_project_id))
    _check_project_id(target_project_id)
    quota_set = body["quota_set"]
    forced = validation.parse_bool("quota_set.force", quota_set.get("force", False))
    forced = validation.parse_bool("skip_validation", query.get("skip_validation", forced))
    limits = {key: value for key, value in quota_set.items() if key not in schema.NOT_LIMITS}
    requested = requested_limits(limits, "quota set", _resource_names(ctx, target_project_id))
    (quotas.set_limits if forced else quotas.set_limits_above_usage)(target_project_id, requested)
    return {"quota_set": _limits(ctx, target_project_id)}


@endpoint("DELETE", ITEM, policy=policy.DELETE)
def delete(ctx: RequestContext, target_project_id: str) -> None:
    """Have the defaults apply to a project again."""
    ctx.authorize(policy.DELETE, _Project(target_project_id))
    _check_project_id(target_project_id)
    quotas.delete_limits(target_project_id)


def _check_project_id(project_id: str) -> None:
    if len(project_id) > _LONGEST_PROJECT:
        raise exception.InvalidInput(
            field="project_id",
            value=f"{project_id[:_LONGEST_PROJECT]}...",
            reason=f"It has at most {_LONGEST_PROJECT} characters.",
        )


def _resource_names(ctx: RequestContext, project_id: str) -> list[str]:
    """Return what is limited; users see the private types of their own project only."""
    known: type_store.Filters = {} if ctx.is_admin else {"known_to": project_id}
    return view.resource_names(ctx, type_store.list_names(known))


def _limits(ctx: RequestContext, project_id: str) -> dict[str, int]:
    return view.effective(_resource_names(ctx, project_id), quotas.project_limits(project_id))


CLASS = "/os-quota-class-sets/{class_name}"


@endpoint("GET", CLASS, policy=policy.GET_CLASS, doc=view.NAMED_CLASS_DOC)
def show_class(ctx: RequestContext, class_name: str) -> Body:
    """Return the quotas of a class; the default applies to what is not set in it."""
    return {"quota_class_set": {**_class_limits(ctx, class_name), "id": class_name}}


@endpoint("PUT", CLASS, policy=policy.UPDATE_CLASS, body=schema.UPDATE_CLASS, doc=view.CLASS_DOC)
def update_class(ctx: RequestContext, class_name: str, body: Body) -> Body:
    """Set some of the quotas of a class; the class exists from then on."""
    known = view.resource_names(ctx, type_store.list_names({}))
    requested = requested_limits(body["quota_class_set"], "quota class set", known)
    quotas.set_class_limits(class_name, requested)
    return {"quota_class_set": _class_limits(ctx, class_name)}


def _class_limits(ctx: RequestContext, class_name: str) -> dict[str, int]:
    of_all = quotas.class_limits(quotas.DEFAULT_CLASS)
    return view.effective(
        view.resource_names(ctx, type_store.list_names({})),
        of_all,
        quotas.class_limits(class_name),
    )


_SHOWN = 10


def requested_limits(body: Mapping[str, Any], kind: str, known: Collection[str]) -> dict[str, int]:
    """Return the limits to be set.

    :param kind: what the body is, in words
    :param known: what can be limited
    :raises BadRequest: with the names that cannot be limited
    """
    if bad := [validation.abbreviate(key) for key in body if key not in known]:
        raise exception.BadRequest(reason=f"Bad key(s) in {kind}: {', '.join(bad[:_SHOWN])}")
    return {name: int(limit) for name, limit in body.items()}

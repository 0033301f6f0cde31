# SPDX-License-Identifier: Apache-2.0
"""How much a project may have, and has."""

from collections.abc import Mapping
from typing import Any

from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api import policy as rules
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.info import policy, view
from attachd.api.quotas import view as quota_view
from attachd.context import RequestContext
from attachd.db import quotas

Body = dict[str, Any]
Query = Mapping[str, str]

_DOC = EndpointDoc(
    {"limits": {"rate": list[Any], "absolute": dict[str, int]}},
    {"project_id": fields.query_text("Another project's, for administrators.")},
)


@endpoint("GET", "/limits", policy=policy.LIMITS, doc=_DOC)
def limits(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """Answer how much the project may have, and how much it has."""
    project = str(ctx.project_id)
    if ctx.is_admin and version >= mv.LIMITS_ADMIN_FILTER:
        project = query.get("project_id") or query.get("tenant_id") or project
    allowed = quota_view.effective(view.LIMITED, quotas.of_project(project))
    absolute = view.limits(allowed)
    target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    if rules.allows(ctx, policy.USED_LIMITS, target):
        absolute |= view.used(quotas.used(project))
    return {"limits": {"rate": [], "absolute": absolute}}

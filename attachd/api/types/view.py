# SPDX-License-Identifier: Apache-2.0
"""How volume types look on the wire; used by the handlers of types."""

from collections.abc import Mapping
from typing import Any, Final

from attachd.api import policy as rules
from attachd.api.types import policy
from attachd.context import RequestContext

Row = Mapping[str, Any]

VISIBLE_SPECS: Final = frozenset(
    {"RESKEY:availability_zones", "multiattach", "replication_enabled"}
)
"""The extra specs that say what a volume can do, and not how the storage is built."""


def detail(ctx: RequestContext, row: Row) -> dict[str, Any]:
    """Show a type, as much of it as the caller may see."""
    shown = {
        "id": row["id"],
        "name": row["name"],
        "description": row["description"],
        "is_public": row["is_public"],
        "os-volume-type-access:is_public": row["is_public"],
    }
    own = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    if rules.allows(ctx, policy.SEE_SPECS, own):
        shown["extra_specs"] = specs(ctx, row)
    if rules.allows(ctx, policy.SEE_QOS, own):
        shown["qos_specs_id"] = None
    return shown


def specs(ctx: RequestContext, row: Row) -> dict[str, str | None]:
    """Return those of a type's extra specs that the caller may see."""
    all_specs: dict[str, str | None] = row["extra_specs"]
    if sees_all_specs(ctx):
        return all_specs
    return {key: value for key, value in all_specs.items() if key in VISIBLE_SPECS}


def sees_all_specs(ctx: RequestContext) -> bool:
    """Tell whether no extra spec is hidden from the caller."""
    own = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    return rules.allows(ctx, policy.READ_SENSITIVE, own)

# SPDX-License-Identifier: Apache-2.0
"""Volume types as answers show them."""

import dataclasses
from typing import Any, Final, NotRequired, Self, TypedDict

from attachd.api import policy_rules
from attachd.api.endpoint import EndpointDoc
from attachd.api.types import policy
from attachd.context import RequestContext
from attachd.db.row_types import VolumeTypeRow

Specs = dict[str, str | None]

IS_PUBLIC: Final = "os-volume-type-access:is_public"

VISIBLE_SPECS: Final = frozenset(
    {"RESKEY:availability_zones", "multiattach", "replication_enabled"}
)
"""The extra specs that describe what a volume can do, and not how the storage is built."""


_Seen = TypedDict("_Seen", {"os-volume-type-access:is_public": NotRequired[bool]})


class VolumeType(_Seen):
    """A volume type, as far as the caller may see it."""

    id: str
    name: str
    description: str | None
    is_public: bool
    extra_specs: NotRequired[dict[str, str | None]]
    qos_specs_id: NotRequired[str | None]


ONE_DOC: Final = EndpointDoc({"volume_type": VolumeType})
"""The answer with one type."""


@dataclasses.dataclass(frozen=True)
class Viewer:
    """What the caller of a request may see of types.

    :ivar specs: whether extra specs are shown in types
    :ivar all_specs: whether sensitive extra specs are shown
    :ivar qos: whether the QoS specs of types are shown
    :ivar access: whether is_public is shown by its second name
    """

    specs: bool
    all_specs: bool
    qos: bool
    access: bool

    @classmethod
    def from_context(cls, ctx: RequestContext) -> Self:
        """Ask policy once, for all types of an answer."""
        target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
        return cls(
            specs=policy_rules.allows(ctx, policy.SEE_SPECS, target),
            all_specs=sees_sensitive_specs(ctx),
            qos=policy_rules.allows(ctx, policy.SEE_QOS, target),
            access=policy_rules.allows(ctx, policy.SEE_ACCESS, target),
        )


def sees_sensitive_specs(ctx: RequestContext) -> bool:
    """Return whether the caller may see all extra specs."""
    target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    return policy_rules.allows(ctx, policy.READ_SENSITIVE, target)


def detail(row: VolumeTypeRow, viewer: Viewer) -> dict[str, Any]:
    """Return a type, as far as the viewer may see it."""
    shown = created(row, viewer)
    if viewer.qos:
        shown["qos_specs_id"] = row["qos_specs_id"]
    return shown


def created(row: VolumeTypeRow, viewer: Viewer) -> dict[str, Any]:
    """Return a type as in the answer to its creation: without its QoS specs."""
    shown = updated(row, viewer)
    if viewer.access:
        shown[IS_PUBLIC] = row["is_public"]
    return shown


def updated(row: VolumeTypeRow, viewer: Viewer) -> dict[str, Any]:
    """Return a type as in the answer to its update: is_public has one name there."""
    shown: dict[str, Any] = {
        "id": row["id"],
        "name": row["name"],
        "description": row["description"],
        "is_public": row["is_public"],
    }
    if viewer.specs:
        shown["extra_specs"] = _visible(row["extra_specs"], all_specs=viewer.all_specs)
    return shown


def specs(ctx: RequestContext, row: VolumeTypeRow) -> Specs:
    """Return the extra specs of a type that the caller may see."""
    return _visible(row["extra_specs"], all_specs=sees_sensitive_specs(ctx))


def _visible(specs: Specs, *, all_specs: bool) -> Specs:
    return {key: value for key, value in specs.items() if all_specs or key in VISIBLE_SPECS}

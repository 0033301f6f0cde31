# SPDX-License-Identifier: Apache-2.0
"""How volume types look on the wire; used by the handlers of types."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Final, NotRequired, Self, TypedDict

from attachd.api import policy as rules
from attachd.api.endpoint import EndpointDoc
from attachd.api.types import policy
from attachd.context import RequestContext

Row = Mapping[str, Any]
Specs = dict[str, str | None]

IS_PUBLIC: Final = "os-volume-type-access:is_public"

VISIBLE_SPECS: Final = frozenset(
    {"RESKEY:availability_zones", "multiattach", "replication_enabled"}
)
"""The extra specs that say what a volume can do, and not how the storage is built."""


_Seen = TypedDict("_Seen", {"os-volume-type-access:is_public": NotRequired[bool]})


class VolumeType(_Seen):
    """A volume type, as much of it as the caller may see."""

    id: str
    name: str
    description: str | None
    is_public: bool
    extra_specs: NotRequired[dict[str, str | None]]
    qos_specs_id: NotRequired[str | None]


ONE_DOC: Final = EndpointDoc({"volume_type": VolumeType})
"""What an answer with one type has."""


@dataclasses.dataclass(frozen=True)
class Viewer:
    """What somebody may see of types.

    :ivar specs: whether they may see extra specs in types
    :ivar all_specs: whether no extra spec is hidden from them
    :ivar qos: whether they may see which QoS specs types have
    :ivar access: whether they may see is_public by its second name
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
            specs=rules.allows(ctx, policy.SEE_SPECS, target),
            all_specs=sees_sensitive_specs(ctx),
            qos=rules.allows(ctx, policy.SEE_QOS, target),
            access=rules.allows(ctx, policy.SEE_ACCESS, target),
        )


def sees_sensitive_specs(ctx: RequestContext) -> bool:
    """Tell whether no extra spec is hidden from the caller."""
    target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
    return rules.allows(ctx, policy.READ_SENSITIVE, target)


def detail(row: Row, viewer: Viewer) -> dict[str, Any]:
    """Show a type, as much of it as the viewer may see."""
    shown = created(row, viewer)
    if viewer.qos:
        shown["qos_specs_id"] = row["qos_specs_id"]
    return shown


def created(row: Row, viewer: Viewer) -> dict[str, Any]:
    """Show a type as the answer to its creation does: without its QoS specs."""
    shown = updated(row, viewer)
    if viewer.access:
        shown[IS_PUBLIC] = row["is_public"]
    return shown


def updated(row: Row, viewer: Viewer) -> dict[str, Any]:
    """Show a type as the answer to its update does: is_public has one name there."""
    shown = {
        "id": row["id"],
        "name": row["name"],
        "description": row["description"],
        "is_public": row["is_public"],
    }
    if viewer.specs:
        shown["extra_specs"] = _visible(row["extra_specs"], all_specs=viewer.all_specs)
    return shown


def specs(ctx: RequestContext, row: Row) -> Specs:
    """Return those of a type's extra specs that the caller may see."""
    return _visible(row["extra_specs"], all_specs=sees_sensitive_specs(ctx))


def _visible(specs: Specs, *, all_specs: bool) -> Specs:
    return {key: value for key, value in specs.items() if all_specs or key in VISIBLE_SPECS}

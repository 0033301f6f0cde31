# SPDX-License-Identifier: Apache-2.0
"""The action os-retype: another type for a volume, on its present backend.

The backend of the volume must provide what the type asks for, or the type is refused: volumes do
not move to other backends here, with any ``migration_policy``.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from attachd import exception, multiattach, scheduler
from attachd.api.actions import policy, schema
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.types import lookup, size_limits
from attachd.api.volumes import load, notify
from attachd.context import RequestContext
from attachd.db.types import qos_specs
from attachd.db.types import store as types
from attachd.db.volumes import updates as volume_updates
from attachd.objects import Volume

PATH = "/volumes/{volume_id}/action"


@action(
    PATH, "os-retype", policy=policy.RETYPE, body=schema.RETYPE, doc=EndpointDoc(faults=(409,))
)
def retype(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Give a volume another type; the change is complete when the answer is sent."""
    volume = load.get(ctx, volume_id, policy.RETYPE)
    volume_type = lookup.get_by_id_or_name(ctx, body["new_type"])
    if volume_type["id"] == volume.volume_type_id:
        raise exception.InvalidVolume(reason=f"Volume {volume.id} has that type already.")
    future = check_retype(volume, volume_type)
    if future.multiattach and not volume.multiattach:
        ctx.authorize(policy.MULTIATTACH, volume)
    judged = volume_type["extra_specs"]
    wanted = volume_updates.RetypeRequest(
        volume.volume_type_id, volume_type["id"], judged, future.statuses
    )
    volume_updates.retype(volume.id, volume.project_id, wanted)
    notify.retype(volume, volume_type["id"])


_AVAILABLE_ONLY: Final = ("available",)
_AVAILABLE_OR_IN_USE: Final = ("available", "in-use")
_AT_THE_HOST: Final = frozenset({"front-end", "both"})


class RetypeResult(NamedTuple):
    """A volume with its new type.

    :ivar multiattach: whether it is multiattach
    :ivar statuses: the statuses in which it may be retyped
    """

    multiattach: bool
    statuses: tuple[str, ...]


def check_retype(volume: Volume, volume_type: lookup.Row) -> RetypeResult:
    """Check that a volume can have another type; return what it will be.

    :raises InvalidInput: its size does not fit the type; or it is in use, and its users would have
        to apply the change
    :raises BadRequest: its backend does not have what the type asks for
    """
    size_limits.check(volume_type, volume.size_gib)
    before, after = _sharing(volume), multiattach.parse(volume_type["extra_specs"])
    changed = []
    if after != before:
        changed.append("how often and by whom it can be attached")
    if _front_end_qos(volume.volume_type_id) != _front_end_qos(volume_type["id"]):
        changed.append("what its hosts limit it to")
    if changed and volume.status != "available":
        raise exception.InvalidInput(
            field="os-retype.new_type",
            value=volume_type["name"],
            reason=f"It changes {' and '.join(changed)}, which is only possible while a volume "
            f"is available; the status of volume {volume.id} is {volume.status}.",
        )
    _check_backend_fits(volume, volume_type)
    return RetypeResult(after.multiattach, _AVAILABLE_ONLY if changed else _AVAILABLE_OR_IN_USE)


def _sharing(volume: Volume) -> multiattach.MultiattachSpec:
    if volume.volume_type_id is None:
        return multiattach.MultiattachSpec()
    return multiattach.parse(types.get(volume.volume_type_id)["extra_specs"])


def _front_end_qos(type_id: str | None) -> str | None:
    """Return the id of a type's QoS specs if hosts apply them, else None."""
    specs_id: str | None = types.get(type_id)["qos_specs_id"] if type_id else None
    if specs_id is None or qos_specs.get(specs_id)["consumer"] not in _AT_THE_HOST:
        return None
    return specs_id


def _check_backend_fits(volume: Volume, volume_type: lookup.Row) -> None:
    try:
        scheduler.check_extra_specs(
            volume.host, volume_type["extra_specs"], volume.availability_zone
        )
    except exception.NoValidBackend as error:
        raise exception.BadRequest(
            reason=f"Volume {volume.id} cannot have the type {volume_type['name']} where it is, "
            f"and this service does not migrate volumes to other backends. {error}"
        ) from error

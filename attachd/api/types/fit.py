# SPDX-License-Identifier: Apache-2.0
"""Whether a volume can have another type where it is, and when; used by the action os-retype."""

from typing import Final, NamedTuple

from attachd import exception, multiattach, scheduler
from attachd.api.types import lookup, sizes
from attachd.db import qos_specs, types
from attachd.objects import Volume

_FREE: Final = ("available",)
_ANY: Final = ("available", "in-use")
_AT_THE_HOST: Final = frozenset({"front-end", "both"})


class Fit(NamedTuple):
    """What a volume will be.

    :ivar multiattach: whether it can be attached several times
    :ivar statuses: in which it may become so
    """

    multiattach: bool
    statuses: tuple[str, ...]


def judge(volume: Volume, kind: lookup.Row) -> Fit:
    """Say what a volume will be with another type.

    :raises InvalidInput: its size is not for the type; or it is in use, and whoever uses it
        would have to hear of the change
    :raises BadRequest: its backend does not have what the type asks for
    """
    sizes.check(kind, volume.size_gib)
    before, after = _sharing(volume), multiattach.of(kind["extra_specs"])
    changed = []
    if after != before:
        changed.append("how often and by whom it can be attached")
    if _limits_at_host(volume.volume_type_id) != _limits_at_host(kind["id"]):
        changed.append("what its hosts limit it to")
    if changed and volume.status != "available":
        raise exception.InvalidInput(
            field="os-retype.new_type",
            value=kind["name"],
            reason=f"It changes {' and '.join(changed)}, which is only possible while a volume "
            f"is available; the status of volume {volume.id} is {volume.status}.",
        )
    _check_place(volume, kind)
    return Fit(after.multiattach, _FREE if changed else _ANY)


def _sharing(volume: Volume) -> multiattach.Sharing:
    if volume.volume_type_id is None:
        return multiattach.Sharing()
    return multiattach.of(types.get(volume.volume_type_id)["extra_specs"])


def _limits_at_host(type_id: str | None) -> str | None:
    """Name the QoS specs of a type that the volume's hosts are told."""
    specs_id: str | None = types.get(type_id)["qos_specs_id"] if type_id else None
    if specs_id is None or qos_specs.get(specs_id)["consumer"] not in _AT_THE_HOST:
        return None
    return specs_id


def _check_place(volume: Volume, kind: lookup.Row) -> None:
    try:
        scheduler.check_fits(volume.host, kind["extra_specs"], volume.availability_zone)
    except exception.NoBackendFits as error:
        raise exception.BadRequest(
            reason=f"Volume {volume.id} cannot have the type {kind['name']} where it is, and "
            f"this service does not migrate volumes to other backends. {error}"
        ) from error

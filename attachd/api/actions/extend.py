# SPDX-License-Identifier: Apache-2.0
"""Actions that extend volumes and confirm it.

Storage that only its user can enlarge, such as an image file that a hypervisor has open, waits
for the user's confirmation.  No backend of this service needs one: the manager extends the volume,
also online, before the new size is shown.  So no volume waits for a confirmation.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.actions import policy, schema
from attachd.api.endpoint import action
from attachd.api.types import size_limits
from attachd.api.volumes import backend_calls, load
from attachd.context import RequestContext
from attachd.db.types import store as types

PATH = "/volumes/{volume_id}/action"


@action(PATH, "os-extend", policy=policy.EXTEND, body=schema.EXTEND)
def extend(
    ctx: RequestContext, volume_id: str, body: Mapping[str, Any], version: mv.Version
) -> None:
    """Mark a volume and have its backend extend it; from 3.42 on also in use."""
    volume = load.get(ctx, volume_id, policy.EXTEND)
    size = int(body["new_size"])
    if size <= volume.size_gib:
        raise exception.InvalidInput(
            field="os-extend.new_size",
            value=size,
            reason="New size for extend must be greater than current size. "
            f"(current: {volume.size_gib}, extended: {size}).",
        )
    allowed = ["available", "in-use"] if version >= mv.VOLUME_EXTEND_INUSE else ["available"]
    refusal = exception.InvalidVolume(
        reason=f"Volume {volume.id} status must be {' or '.join(allowed)} to extend, "
        f"currently {volume.status}."
    )
    if volume.status not in allowed:
        raise refusal
    if volume.status == "in-use":
        ctx.authorize(policy.EXTEND_ATTACHED, volume)
    if volume.volume_type_id:
        size_limits.check(types.get(volume.volume_type_id), size)
    try:
        backend_calls.extend(ctx, volume, size)
    except exception.InvalidTransition as error:
        raise refusal from error


@action(
    PATH,
    "os-extend_volume_completion",
    policy=policy.EXTEND_COMPLETION,
    body=schema.EXTEND_COMPLETION,
)
def complete_extend(ctx: RequestContext, volume_id: str) -> NoReturn:
    """Refuse a confirmation, because no volume waits for one.

    Versions before 3.71 answer the same; 3.71 only shows clients that they may call this.
    """
    volume = load.get(ctx, volume_id, policy.EXTEND_COMPLETION)
    if volume.status != "extending":
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} is not being extended, its status is {volume.status}."
        )
    raise exception.InvalidVolume(
        reason=f"Volume {volume.id} is extended by its backend, which needs no confirmation."
    )

# SPDX-License-Identifier: Apache-2.0
"""Another type for a volume, where it is.

What a type promises is kept by the backend that has the volume, or the type is refused: volumes
do not move to other backends here, whichever ``migration_policy`` allows them to.
"""

from collections.abc import Mapping
from typing import Any

from attachd import exception
from attachd.api.actions import policy, schema
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.types import fit, lookup
from attachd.api.volumes import load, telling
from attachd.context import RequestContext
from attachd.db import volume_changes

PATH = "/volumes/{volume_id}/action"


@action(
    PATH, "os-retype", policy=policy.RETYPE, body=schema.RETYPE, doc=EndpointDoc(faults=(409,))
)
def retype(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Give a volume another type; it has it when the answer comes."""
    volume = load.volume(ctx, volume_id, policy.RETYPE)
    kind = lookup.by_id_or_name(ctx, body["new_type"])
    if kind["id"] == volume.volume_type_id:
        raise exception.InvalidVolume(reason=f"Volume {volume.id} has that type already.")
    future = fit.judge(volume, kind)
    if future.multiattach and not volume.multiattach:
        ctx.authorize(policy.MULTIATTACH, volume)
    judged = kind["extra_specs"]
    wanted = volume_changes.Retype(volume.volume_type_id, kind["id"], judged, future.statuses)
    volume_changes.retype(volume.id, volume.project_id, wanted)
    telling.of_retype(volume, kind["id"])

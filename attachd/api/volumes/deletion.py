# SPDX-License-Identifier: Apache-2.0
"""Deleting volumes."""

from collections.abc import Mapping

from attachd import exception
from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api.endpoint import endpoint
from attachd.api.volumes import load, policy, work
from attachd.context import RequestContext
from attachd.db import volumes


@endpoint("DELETE", "/volumes/{volume_id}", policy=policy.DELETE, status=202)
def delete(
    ctx: RequestContext, volume_id: str, query: Mapping[str, str], version: mv.Version
) -> None:
    """Mark a volume and have its backend remove it; ``cascade`` finds nothing to go along."""
    fields.truth("cascade", query.get("cascade", "false"))
    forced = fields.truth("force", query.get("force", "false"))
    volume = load.volume(ctx, volume_id, policy.DELETE)
    forced = forced and version >= mv.VOLUME_DELETE_FORCE
    if forced:
        ctx.authorize(policy.FORCE_DELETE, volume)
    try:
        work.delete(ctx, volume)
    except exception.InvalidTransition as error:
        if not forced:
            raise exception.InvalidVolume(
                reason=f"Volume {volume.id} must be available, or in an error, to be deleted, "
                f"but its status is {volume.status}."
            ) from error
        # What its backend still does to it comes to its end first, and finds it in another state.
        volumes.reset(volume.id, "error", None)
        work.delete(ctx, volume)

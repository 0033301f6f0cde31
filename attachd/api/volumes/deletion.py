# SPDX-License-Identifier: Apache-2.0
"""Deleting volumes; forced.py has the force."""

from collections.abc import Mapping

import webob

from attachd import exception
from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.volumes import forced, load, policy, work
from attachd.context import RequestContext

_DOC = EndpointDoc(
    parameters={
        "cascade": fields.query_flag("Means nothing: there are no snapshots."),
        "force": fields.query_flag("Whatever its state, for administrators."),
    },
)


@endpoint("DELETE", "/volumes/{volume_id}", policy=policy.DELETE, status=202, doc=_DOC)
def delete(
    ctx: RequestContext,
    volume_id: str,
    query: Mapping[str, str],
    version: mv.Version,
    request: webob.Request,
) -> None:
    """Mark a volume and have its backend remove it; ``cascade`` finds nothing to go along."""
    fields.truth("cascade", query.get("cascade", "false"))
    force = fields.truth("force", query.get("force", "false"))
    volume = load.volume(ctx, volume_id, policy.DELETE)
    if force and version >= mv.VOLUME_DELETE_FORCE:
        ctx.authorize(policy.FORCE_DELETE, volume)
        forced.delete(ctx, volume, request)
        return
    try:
        work.delete(ctx, volume)
    except exception.InvalidTransition as error:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} must be available, or in an error, to be deleted, "
            f"but its status is {volume.status}."
        ) from error

# SPDX-License-Identifier: Apache-2.0
"""Deleting volumes by force, as an action; DELETE with ``force=true`` does the same."""

import webob

from attachd.api.actions import policy
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.volumes import forced, load
from attachd.context import RequestContext

PATH = "/volumes/{volume_id}/action"


@action(PATH, "os-force_delete", policy=policy.FORCE_DELETE, doc=EndpointDoc(faults=(409, 504)))
def force_delete(ctx: RequestContext, volume_id: str, request: webob.Request) -> None:
    """Have a volume deleted; whatever the action's name stands for is ignored."""
    forced.delete(ctx, load.volume(ctx, volume_id, policy.FORCE_DELETE), request)

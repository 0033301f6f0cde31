# SPDX-License-Identifier: Apache-2.0
"""An administrator takes Compute's part, and says why; called by guard.py.

``?override_reason=...`` under attachd 1.0; who and why is logged and told to listeners.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from oslo_log import log
import webob

from attachd import notifications
from attachd.api import microversions as mv
from attachd.api import payload
from attachd.api.attachments import policy
from attachd.api.validation import Validator
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

PARAMETER: Final = "override_reason"

_REASON: Final = Validator(
    {
        "type": "string",
        "maxLength": 255,
        "pattern": r"\S",
        "description": "a reason that can be read",
    }
)


class Held(NamedTuple):
    """What has to be known of an attachment."""

    id: str
    volume_id: str
    project_id: str
    user_id: str | None
    instance_uuid: str | None
    state: str
    host: str | None


def is_given(ctx: RequestContext, request: webob.Request, wanted: Sequence[Held]) -> bool:
    """Tell whether an administrator takes the responsibility, and write down who and why.

    :raises Forbidden: the caller may not
    :raises InvalidInput: there is no reason that could be read
    """
    if mv.negotiate(request.environ.get("HTTP_OPENSTACK_API_VERSION")).own is None:
        return False
    reason = payload.read_query(request.query_string).get(PARAMETER)
    if reason is None:
        return False
    _REASON.check(reason, PARAMETER)
    for each in wanted:
        ctx.authorize(policy.OVERRIDE, each)
    for each in wanted:
        _record(ctx, each, reason)
    return True


def _record(ctx: RequestContext, held: Held, reason: str) -> None:
    LOG.warning(
        "Attachment %s of volume %s, of server %s on host %s, is deleted without asking Compute: "
        "user %s of project %s overrides it, because: %s",
        held.id,
        held.volume_id,
        held.instance_uuid,
        held.host,
        ctx.user_id,
        ctx.project_id,
        reason,
    )
    note = {
        "attachment_id": held.id,
        "instance_uuid": held.instance_uuid,
        "attached_host": held.host,
        "user_id": ctx.user_id,
        "project_id": ctx.project_id,
        "reason": reason,
    }
    notifications.urgent_volume("detach.override", held.volume_id, override=note)

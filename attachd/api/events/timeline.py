# SPDX-License-Identifier: Apache-2.0
"""Looking back at what has become of one attachment; attachd 1.0."""

from typing import Any

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.events import parameters, policy, view
from attachd.context import RequestContext
from attachd.db import events
from attachd.objects.base import scope


@endpoint(
    "GET",
    "/attachments/{attachment_id}/timeline",
    ext_since=mv.EXT_BASE,
    policy=policy.TIMELINE,
    doc=EndpointDoc({"timeline": list[view.Event]}),
)
def timeline(ctx: RequestContext, attachment_id: str) -> dict[str, Any]:
    """Answer what has become of an attachment, the first first; it may be gone itself."""
    rows = events.of_attachment(attachment_id, scope(ctx))
    if not rows:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    internals = parameters.sees_internals(ctx, rows[0]["project_id"])
    return {"timeline": [view.event(row, internals=internals) for row in rows]}

# SPDX-License-Identifier: Apache-2.0
"""What is kept of the answer to a request with a key, and how it is made again; for handlers.

A connection holds secrets, so it is not kept: it is read again from the attachment that has it,
for whoever may see it by then.
"""

from collections.abc import Mapping
from typing import Any, Final

from attachd.api import idempotency
from attachd.api import microversions as mv
from attachd.api.attachments import view
from attachd.context import RequestContext
from attachd.objects import Attachment

IdempotencyClaim = idempotency.IdempotencyClaim

_CONNECTION: Final = "connection_info"


def _keep(answer: Mapping[str, Any]) -> dict[str, Any]:
    shown = answer["attachment"]
    kept = None if shown[_CONNECTION] else shown[_CONNECTION]
    return {"attachment": {**shown, _CONNECTION: kept}}


def _remake(ctx: RequestContext, resource_id: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Answer what was answered; raises KeyOutlived if the attachment is gone."""
    attachment = idempotency.still_there(
        resource_id, "attachment", lambda: Attachment.get(ctx, resource_id)
    )
    shown = kept["attachment"]
    if attachment.agent is not None:
        # What an agent did since then is what whoever repeats the request wants to know.
        now = view.shown(ctx, attachment, mv.EXT_BASE)["attachment"]
        return {"attachment": {name: now[name] for name in shown}}  # type: ignore[literal-required]
    if shown[_CONNECTION] is None:
        now = view.shown(ctx, attachment, None)["attachment"]
        shown = {**shown, _CONNECTION: now["connection_info"]}
    return {"attachment": shown}


RECIPE: Final = idempotency.Recipe(_keep, _remake)

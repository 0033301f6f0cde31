# SPDX-License-Identifier: Apache-2.0
"""Fence attachments, and wait for the results, which their managers store."""

from collections.abc import Sequence
from typing import Final

import tenacity

from attachd.closed_hosts import fences
from attachd.closed_hosts.fences import FencedAttachment, Subject
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import host_fences
from attachd.db.attachments import attachment_queries
from attachd.db.row_types import AttachmentWithVolumeRow
from attachd.objects import Attachment

WAIT: Final = tenacity.wait_exponential(multiplier=0.025, max=0.5)
"""Seconds between two reads of the rows."""
_NO_ANSWER: Final = "There was no answer in time. It goes on."


def fence_host(ctx: RequestContext, host: str) -> list[FencedAttachment]:
    """Fence all attachments of a fenced host; return the results within [rpc]attach_timeout."""
    rows = host_fences.list_to_fence([host])
    return _fence(ctx, rows, rows)


def fence(ctx: RequestContext, attachment: Attachment) -> FencedAttachment:
    """Fence an attachment, which may be gone; return the result within [rpc]attach_timeout."""
    known = Subject(
        id=attachment.id,
        parent_id=None,
        volume_id=attachment.volume_id,
        instance_uuid=attachment.instance_uuid,
    )
    rows = attachment_queries.list_by_ids([attachment.id])
    (result,) = _fence(ctx, [known], [*rows.values()])
    return result


def _fence(
    ctx: RequestContext, known: Sequence[Subject], rows: Sequence[AttachmentWithVolumeRow]
) -> list[FencedAttachment]:
    """Fence attachments.

    :param known: what is to be fenced
    :param rows: those of it that exist
    """
    refused = fences.begin(ctx, rows)
    accepted = [item for item in known if item["id"] not in refused]
    wait = tenacity.Retrying(
        retry=tenacity.retry_if_result(_is_any_under_way),
        wait=WAIT,
        stop=tenacity.stop_after_delay(CONF.rpc.attach_timeout),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    ids = [item["id"] for item in accepted]
    results = dict(zip(ids, wait(fences.list_results, accepted), strict=True))
    return [_answered(refused.get(item["id"]) or results[item["id"]]) for item in known]


def _is_any_under_way(results: Sequence[FencedAttachment]) -> bool:
    """Return whether a manager is still at work: one that cannot begin has stored why."""
    return any(item["result"] == "pending" and item["reason"] is None for item in results)


def _answered(result: FencedAttachment) -> FencedAttachment:
    if result["result"] != "pending":
        return result
    return {**result, "reason": result["reason"] or _NO_ANSWER}

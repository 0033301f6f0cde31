# SPDX-License-Identifier: Apache-2.0
"""Fence attachments, and wait for the results, which their managers store."""

from collections.abc import Sequence
from typing import Final

from attachd.api import polling
from attachd.closed_hosts import fences
from attachd.closed_hosts.fences import FencedAttachment, Subject
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import host_fences
from attachd.db.attachments import attachment_queries
from attachd.db.row_types import AttachmentWithVolumeRow
from attachd.objects import Attachment

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
    results = fences.begin(ctx, rows)
    accepted = [item for item in known if item["id"] not in results]
    polling.wait_while(lambda: _read_results(results, accepted), CONF.rpc.attach_timeout)
    return [_answered(results[item["id"]]) for item in known]


def _read_results(results: dict[str, FencedAttachment], accepted: Sequence[Subject]) -> bool:
    """Read the results that are missing; return whether any manager is still at work.

    :param results: by the ids of the rows; changed
    """
    missing = [item for item in accepted if _is_pending(results.get(item["id"]))]
    found = fences.list_results(missing)
    results.update((item["id"], result) for item, result in zip(missing, found, strict=True))
    # A manager that cannot begin has stored why.
    return any(_is_pending(result) and result["reason"] is None for result in found)


def _is_pending(result: FencedAttachment | None) -> bool:
    return result is None or result["result"] == "pending"


def _answered(result: FencedAttachment) -> FencedAttachment:
    if result["result"] != "pending":
        return result
    return {**result, "reason": result["reason"] or _NO_ANSWER}

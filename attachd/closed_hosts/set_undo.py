# SPDX-License-Identifier: Apache-2.0
"""Undo a set of attachments of which one has failed: remove those that are left.

The process of the API begins, and one manager goes on where that has ended.
"""

from typing import Final

from attachd.closed_hosts import detaches
from attachd.context import RequestContext
from attachd.db.attachments import attachment_queries, attachment_sets
from attachd.db.row_types import AttachmentSetRow
from attachd.states import AttachmentState

_REMOVING: Final = frozenset({AttachmentState.WITHDRAWING, AttachmentState.DISCONNECTING})
"""States in which an agent or a manager is at work, and tries again by itself."""


def advance(ctx: RequestContext, row: AttachmentSetRow) -> bool:
    """Begin to remove what is left of a set that is being undone.

    A device that is in use stays, and is tried again by the next call.

    :returns: whether nothing is left; then the row of the set is deleted
    """
    left = attachment_queries.list_by_ids(row["attachment_ids"])
    for attachment in left.values():
        if attachment["state"] not in _REMOVING:
            detaches.begin(ctx, attachment)
    if not left:
        attachment_sets.delete_undone(row["id"])
    return not left

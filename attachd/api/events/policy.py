# SPDX-License-Identifier: Apache-2.0
"""Who may see what has become of attachments."""

from attachd.api import policy

TIMELINE = "volume:attachment_timeline"
WATCH = "volume:event_watch"
INTERNALS = "volume:event_internals"

RULES = [
    policy.rule(
        TIMELINE,
        policy.READER,
        "See what has become of an attachment, also when it is gone.",
        "GET /attachments/{attachment_id}/timeline",
    ),
    policy.rule(
        WATCH,
        policy.READER,
        "Watch what becomes of the attachments of the project.",
        "GET /events",
    ),
    policy.rule(
        INTERNALS,
        policy.ADMIN,
        "See of an event also which process it comes from and what the storage said.",
        "GET /attachments/{attachment_id}/timeline",
        "GET /events",
    ),
]

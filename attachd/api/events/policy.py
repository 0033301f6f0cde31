# SPDX-License-Identifier: Apache-2.0
"""Policy of events and timelines."""

from attachd.api import policy

TIMELINE = "volume:attachment_timeline"
WATCH = "volume:event_watch"
INTERNALS = "volume:event_internals"

RULES = [
    policy.rule(
        TIMELINE,
        policy.READER,
        "Show the timeline of an attachment, also of a deleted one.",
        "GET /attachments/{attachment_id}/timeline",
    ),
    policy.rule(
        WATCH,
        policy.READER,
        "Watch the events of the project's attachments.",
        "GET /events",
    ),
    policy.rule(
        INTERNALS,
        policy.ADMIN,
        "See which process caused an event, and errors of the backend or the agent.",
        "GET /attachments/{attachment_id}/timeline",
        "GET /events",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Policy of events and timelines."""

from attachd.api import policy_rules

TIMELINE = "volume:attachment_timeline"
WATCH = "volume:event_watch"
INTERNALS = "volume:event_internals"

RULES = [
    policy_rules.rule(
        TIMELINE,
        policy_rules.READER,
        "Show the timeline of an attachment, also of a deleted one.",
        "GET /attachments/{attachment_id}/timeline",
    ),
    policy_rules.rule(
        WATCH,
        policy_rules.READER,
        "Watch the events of the project's attachments.",
        "GET /events",
    ),
    policy_rules.rule(
        INTERNALS,
        policy_rules.ADMIN,
        "See which process caused an event, and errors of the backend or the agent.",
        "GET /attachments/{attachment_id}/timeline",
        "GET /events",
    ),
]

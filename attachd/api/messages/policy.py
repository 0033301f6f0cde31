# SPDX-License-Identifier: Apache-2.0
"""Policy of messages to users."""

from attachd.api import policy_rules

GET = "message:get"
GET_ALL = "message:get_all"
DELETE = "message:delete"

_ITEM = "/messages/{message_id}"

RULES = [
    policy_rules.rule(GET_ALL, policy_rules.READER, "List messages to users.", "GET /messages"),
    policy_rules.rule(GET, policy_rules.READER, "Show a message to users.", f"GET {_ITEM}"),
    policy_rules.rule(
        DELETE, policy_rules.MEMBER, "Delete a message to users.", f"DELETE {_ITEM}"
    ),
]

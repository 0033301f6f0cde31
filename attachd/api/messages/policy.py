# SPDX-License-Identifier: Apache-2.0
"""Policy of messages to users."""

from attachd.api import policy

GET = "message:get"
GET_ALL = "message:get_all"
DELETE = "message:delete"

_ITEM = "/messages/{message_id}"

RULES = [
    policy.rule(GET_ALL, policy.READER, "List messages to users.", "GET /messages"),
    policy.rule(GET, policy.READER, "Show a message to users.", f"GET {_ITEM}"),
    policy.rule(DELETE, policy.MEMBER, "Delete a message to users.", f"DELETE {_ITEM}"),
]

# SPDX-License-Identifier: Apache-2.0
"""Policy of the agents of hosts."""

from attachd.api import policy_rules

GET = "volume:agent_get"
DELETE = "volume:agent_delete"

RULES = [
    policy_rules.rule(
        GET,
        policy_rules.ADMIN,
        "List and show the agents of hosts, their states and their devices.",
        "GET /agents",
        "GET /agents/{host}",
    ),
    policy_rules.rule(
        DELETE,
        policy_rules.ADMIN,
        "Delete the agent of a host, and its key.",
        "DELETE /agents/{host}",
    ),
]

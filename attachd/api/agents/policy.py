# SPDX-License-Identifier: Apache-2.0
"""Who may look at the agents of hosts, and have one forgotten."""

from attachd.api import policy

GET = "volume:agent_get"
DELETE = "volume:agent_delete"

RULES = [
    policy.rule(
        GET,
        policy.ADMIN,
        "See which hosts have an agent, how each of them is, and what it has attached.",
        "GET /agents",
        "GET /agents/{host}",
    ),
    policy.rule(
        DELETE,
        policy.ADMIN,
        "Forget the agent of a host, and its key with it.",
        "DELETE /agents/{host}",
    ),
]

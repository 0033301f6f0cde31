# SPDX-License-Identifier: Apache-2.0
"""Who may look at services and backends, and switch them on and off."""

from attachd.api import policy

GET_ALL = "volume_extension:services:index"
UPDATE = "volume_extension:services:update"
GET_POOLS = "scheduler_extension:scheduler_stats:get_pools"
CAPABILITIES = "volume_extension:capabilities"

RULES = [
    policy.rule(GET_ALL, policy.ADMIN, "List services.", "GET /os-services"),
    policy.rule(
        UPDATE,
        policy.ADMIN,
        "Have a backend get new volumes, or no more.",
        "PUT /os-services/enable",
        "PUT /os-services/disable",
        "PUT /os-services/disable-log-reason",
    ),
    policy.rule(
        GET_POOLS, policy.ADMIN, "List the pools of backends.", "GET /scheduler-stats/get_pools"
    ),
    policy.rule(
        CAPABILITIES,
        policy.ADMIN,
        "See what a backend can do.",
        "GET /capabilities/{host}",
    ),
]

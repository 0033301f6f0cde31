# SPDX-License-Identifier: Apache-2.0
"""Policy of services and backends."""

from attachd.api import policy

GET_ALL = "volume_extension:services:index"
UPDATE = "volume_extension:services:update"
GET_POOLS = "scheduler_extension:scheduler_stats:get_pools"
CAPABILITIES = "volume_extension:capabilities"
FREEZE = "volume:freeze_host"
THAW = "volume:thaw_host"
FAILOVER = "volume:failover_host"

RULES = [
    policy.rule(GET_ALL, policy.ADMIN, "List services.", "GET /os-services"),
    policy.rule(
        UPDATE,
        policy.ADMIN,
        "Change a service: enable, disable, freeze or thaw it, set and read its log levels.",
        "PUT /os-services/enable",
        "PUT /os-services/disable",
        "PUT /os-services/disable-log-reason",
        "PUT /os-services/freeze",
        "PUT /os-services/thaw",
        "PUT /os-services/failover_host",
        "PUT /os-services/failover",
        "PUT /os-services/set-log",
        "PUT /os-services/get-log",
    ),
    policy.rule(
        FREEZE,
        policy.ADMIN,
        "Freeze a backend: it creates, deletes and extends no volumes.",
        "PUT /os-services/freeze",
    ),
    policy.rule(THAW, policy.ADMIN, "Thaw a frozen backend.", "PUT /os-services/thaw"),
    policy.rule(
        FAILOVER,
        policy.ADMIN,
        "Fail over to another backend; always refused, because no backend replicates.",
        "PUT /os-services/failover_host",
        "PUT /os-services/failover",
    ),
    policy.rule(
        GET_POOLS, policy.ADMIN, "List the pools of backends.", "GET /scheduler-stats/get_pools"
    ),
    policy.rule(
        CAPABILITIES,
        policy.ADMIN,
        "Show the capabilities of a backend.",
        "GET /capabilities/{host}",
    ),
]

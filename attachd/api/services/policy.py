# SPDX-License-Identifier: Apache-2.0
"""Policy of services and backends."""

from attachd.api import policy_rules

GET_ALL = "volume_extension:services:index"
UPDATE = "volume_extension:services:update"
GET_POOLS = "scheduler_extension:scheduler_stats:get_pools"
CAPABILITIES = "volume_extension:capabilities"
FREEZE = "volume:freeze_host"
THAW = "volume:thaw_host"
FAILOVER = "volume:failover_host"

RULES = [
    policy_rules.rule(GET_ALL, policy_rules.ADMIN, "List services.", "GET /os-services"),
    policy_rules.rule(
        UPDATE,
        policy_rules.ADMIN,
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
    policy_rules.rule(
        FREEZE,
        policy_rules.ADMIN,
        "Freeze a backend: it creates, deletes and extends no volumes.",
        "PUT /os-services/freeze",
    ),
    policy_rules.rule(THAW, policy_rules.ADMIN, "Thaw a frozen backend.", "PUT /os-services/thaw"),
    policy_rules.rule(
        FAILOVER,
        policy_rules.ADMIN,
        "Fail over to another backend; always refused, because no backend replicates.",
        "PUT /os-services/failover_host",
        "PUT /os-services/failover",
    ),
    policy_rules.rule(
        GET_POOLS,
        policy_rules.ADMIN,
        "List the pools of backends.",
        "GET /scheduler-stats/get_pools",
    ),
    policy_rules.rule(
        CAPABILITIES,
        policy_rules.ADMIN,
        "Show the capabilities of a backend.",
        "GET /capabilities/{host}",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Policy of clusters, of which there are none, and of the cleanup of unfinished work."""

from attachd.api import policy_rules

GET = "clusters:get"
GET_ALL = "clusters:get_all"
UPDATE = "clusters:update"
CLEANUP = "workers:cleanup"

RULES = [
    policy_rules.rule(
        GET_ALL,
        policy_rules.ADMIN,
        "List clusters of managers; there are none.",
        "GET /clusters",
        "GET /clusters/detail",
    ),
    policy_rules.rule(GET, policy_rules.ADMIN, "Show a cluster.", "GET /clusters/{name}"),
    policy_rules.rule(
        UPDATE,
        policy_rules.ADMIN,
        "Enable and disable a cluster.",
        "PUT /clusters/enable",
        "PUT /clusters/disable",
    ),
    policy_rules.rule(
        CLEANUP,
        policy_rules.ADMIN,
        "List the managers that finish their unfinished work.",
        "POST /workers/cleanup",
    ),
]

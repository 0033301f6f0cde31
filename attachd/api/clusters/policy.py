# SPDX-License-Identifier: Apache-2.0
"""Policy of clusters, of which there are none, and of the cleanup of unfinished work."""

from attachd.api import policy

GET = "clusters:get"
GET_ALL = "clusters:get_all"
UPDATE = "clusters:update"
CLEANUP = "workers:cleanup"

RULES = [
    policy.rule(
        GET_ALL,
        policy.ADMIN,
        "List clusters of managers; there are none.",
        "GET /clusters",
        "GET /clusters/detail",
    ),
    policy.rule(GET, policy.ADMIN, "Show a cluster.", "GET /clusters/{name}"),
    policy.rule(
        UPDATE,
        policy.ADMIN,
        "Enable and disable a cluster.",
        "PUT /clusters/enable",
        "PUT /clusters/disable",
    ),
    policy.rule(
        CLEANUP,
        policy.ADMIN,
        "List the managers that finish their unfinished work.",
        "POST /workers/cleanup",
    ),
]

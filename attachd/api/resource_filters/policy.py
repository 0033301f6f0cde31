# SPDX-License-Identifier: Apache-2.0
"""Policy of the filters of lists."""

from attachd.api import policy_rules

GET_ALL = "volume:resource_filters_get"

RULES = [
    policy_rules.rule(
        GET_ALL, policy_rules.ALLOW_ALL, "List the filters of each list.", "GET /resource_filters"
    ),
]

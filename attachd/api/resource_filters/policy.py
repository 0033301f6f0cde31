# SPDX-License-Identifier: Apache-2.0
"""Policy of the filters of lists."""

from attachd.api import policy

GET_ALL = "volume:resource_filters_get"

RULES = [
    policy.rule(
        GET_ALL, policy.ALLOW_ALL, "List the filters of each list.", "GET /resource_filters"
    ),
]

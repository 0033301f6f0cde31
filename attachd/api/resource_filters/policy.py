# SPDX-License-Identifier: Apache-2.0
"""Who may see what lists can be filtered by."""

from attachd.api import policy

GET_ALL = "volume:resource_filters_get"

RULES = [
    policy.rule(
        GET_ALL, policy.ANYBODY, "See what lists can be filtered by.", "GET /resource_filters"
    ),
]

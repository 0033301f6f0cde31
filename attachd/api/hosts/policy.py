# SPDX-License-Identifier: Apache-2.0
"""Policy of hosts."""

from attachd.api import policy_rules

MANAGE = "volume_extension:hosts"

RULES = [
    policy_rules.rule(
        MANAGE,
        policy_rules.ADMIN,
        "List hosts, and show the usage of one of them.",
        "GET /os-hosts",
        "GET /os-hosts/{host}",
        "PUT /os-hosts/{host}",
    ),
]

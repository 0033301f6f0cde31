# SPDX-License-Identifier: Apache-2.0
"""Who may look at hosts."""

from attachd.api import policy

MANAGE = "volume_extension:hosts"

RULES = [
    policy.rule(
        MANAGE,
        policy.ADMIN,
        "List hosts, and see how much is at one of them.",
        "GET /os-hosts",
        "GET /os-hosts/{host}",
        "PUT /os-hosts/{host}",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Who may ask what the service has and how much of it is used."""

from attachd.api import policy

USED_LIMITS = "limits_extension:used_limits"

RULES = [
    policy.rule(USED_LIMITS, policy.READER, "See in the limits how much is used.", "GET /limits"),
]

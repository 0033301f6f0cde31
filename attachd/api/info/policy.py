# SPDX-License-Identifier: Apache-2.0
"""Who may ask what the service has and how much of it is used."""

from attachd.api import policy

LIMITS = "volume:limits_get"
USED_LIMITS = "limits_extension:used_limits"
EXTENSIONS = "volume:extensions_get"
ZONES = "volume:availability_zone_list"

RULES = [
    policy.rule(LIMITS, policy.ANYBODY, "See how much a project may have.", "GET /limits"),
    policy.rule(USED_LIMITS, policy.READER, "See in the limits how much is used.", "GET /limits"),
    policy.rule(
        EXTENSIONS,
        policy.ANYBODY,
        "See which parts of the API there are.",
        "GET /extensions",
        "GET /extensions/{alias}",
    ),
    policy.rule(ZONES, policy.READER, "See the availability zones.", "GET /os-availability-zone"),
]

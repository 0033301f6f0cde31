# SPDX-License-Identifier: Apache-2.0
"""Policy of extensions, availability zones and limits."""

from attachd.api import policy

LIMITS = "volume:limits_get"
USED_LIMITS = "limits_extension:used_limits"
EXTENSIONS = "volume:extensions_get"
ZONES = "volume:availability_zone_list"

RULES = [
    policy.rule(LIMITS, policy.ALLOW_ALL, "Show the limits of a project.", "GET /limits"),
    policy.rule(USED_LIMITS, policy.READER, "Show the usage among the limits.", "GET /limits"),
    policy.rule(
        EXTENSIONS,
        policy.ALLOW_ALL,
        "List the extensions of the API.",
        "GET /extensions",
        "GET /extensions/{alias}",
    ),
    policy.rule(ZONES, policy.READER, "List the availability zones.", "GET /os-availability-zone"),
]

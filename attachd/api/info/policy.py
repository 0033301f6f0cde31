# SPDX-License-Identifier: Apache-2.0
"""Policy of extensions, availability zones and limits."""

from attachd.api import policy_rules

LIMITS = "volume:limits_get"
USED_LIMITS = "limits_extension:used_limits"
EXTENSIONS = "volume:extensions_get"
ZONES = "volume:availability_zone_list"
PERMISSIONS = "volume:permissions_get"

RULES = [
    policy_rules.rule(
        LIMITS, policy_rules.ALLOW_ALL, "Show the limits of a project.", "GET /limits"
    ),
    policy_rules.rule(
        USED_LIMITS, policy_rules.READER, "Show the usage among the limits.", "GET /limits"
    ),
    policy_rules.rule(
        EXTENSIONS,
        policy_rules.ALLOW_ALL,
        "List the extensions of the API.",
        "GET /extensions",
        "GET /extensions/{alias}",
    ),
    policy_rules.rule(
        PERMISSIONS,
        policy_rules.ALLOW_ALL,
        "List the rules that allow the caller to act in its own project.",
        "GET /permissions",
    ),
    policy_rules.rule(
        ZONES, policy_rules.READER, "List the availability zones.", "GET /os-availability-zone"
    ),
]

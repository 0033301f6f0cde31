# SPDX-License-Identifier: Apache-2.0
"""Policy rules of the actions that attach volumes."""

from attachd.api import policy_rules

_PREFIX = "volume_extension:volume_actions:"

RESERVE = f"{_PREFIX}reserve"
UNRESERVE = f"{_PREFIX}unreserve"
BEGIN_DETACHING = f"{_PREFIX}begin_detaching"
ROLL_DETACHING = f"{_PREFIX}roll_detaching"
INITIALIZE = f"{_PREFIX}initialize_connection"
TERMINATE = f"{_PREFIX}terminate_connection"
ATTACH = f"{_PREFIX}attach"
DETACH = f"{_PREFIX}detach"
FORCE_DETACH = "volume_extension:volume_admin_actions:force_detach"

_ACTION = "POST /volumes/{volume_id}/action"

RULES = [
    policy_rules.rule(
        RESERVE,
        policy_rules.MEMBER,
        "Reserve a volume that is about to be attached.",
        f"{_ACTION} (os-reserve)",
    ),
    policy_rules.rule(
        UNRESERVE,
        policy_rules.MEMBER,
        "Release a volume that was reserved.",
        f"{_ACTION} (os-unreserve)",
    ),
    policy_rules.rule(
        BEGIN_DETACHING,
        policy_rules.MEMBER,
        "Mark a volume as detaching.",
        f"{_ACTION} (os-begin_detaching)",
    ),
    policy_rules.rule(
        ROLL_DETACHING,
        policy_rules.MEMBER,
        "Undo the mark that a volume is detaching.",
        f"{_ACTION} (os-roll_detaching)",
    ),
    policy_rules.rule(
        INITIALIZE,
        policy_rules.MEMBER,
        "Connect a host to a volume. The answer includes the secrets of the connection.",
        f"{_ACTION} (os-initialize_connection)",
    ),
    policy_rules.rule(
        TERMINATE,
        policy_rules.MEMBER,
        "Remove a host's access to a volume.",
        f"{_ACTION} (os-terminate_connection)",
    ),
    policy_rules.rule(
        ATTACH,
        policy_rules.MEMBER,
        "Report that a volume is attached to a server or a host.",
        f"{_ACTION} (os-attach)",
    ),
    policy_rules.rule(
        DETACH,
        policy_rules.MEMBER,
        "Detach a volume, and close its remaining connections.",
        f"{_ACTION} (os-detach)",
    ),
    policy_rules.rule(
        FORCE_DETACH,
        policy_rules.ADMIN,
        "Detach a volume in any state of its attachment.",
        f"{_ACTION} (os-force_detach)",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Who may attach volumes by the older calls."""

from attachd.api import policy

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
    policy.rule(
        RESERVE,
        policy.MEMBER,
        "Take a volume that is about to be attached.",
        f"{_ACTION} (os-reserve)",
    ),
    policy.rule(
        UNRESERVE,
        policy.MEMBER,
        "Give a volume back that was taken to be attached.",
        f"{_ACTION} (os-unreserve)",
    ),
    policy.rule(
        BEGIN_DETACHING,
        policy.MEMBER,
        "Say that an attachment of a volume is about to be detached.",
        f"{_ACTION} (os-begin_detaching)",
    ),
    policy.rule(
        ROLL_DETACHING,
        policy.MEMBER,
        "Say that an attachment of a volume is not going to be detached after all.",
        f"{_ACTION} (os-roll_detaching)",
    ),
    policy.rule(
        INITIALIZE,
        policy.MEMBER,
        "Let a host reach a volume, and learn how, with all that is secret in it.",
        f"{_ACTION} (os-initialize_connection)",
    ),
    policy.rule(
        TERMINATE,
        policy.MEMBER,
        "Take a host's access to a volume away.",
        f"{_ACTION} (os-terminate_connection)",
    ),
    policy.rule(
        ATTACH,
        policy.MEMBER,
        "Say that a volume is attached to a server or a host.",
        f"{_ACTION} (os-attach)",
    ),
    policy.rule(
        DETACH,
        policy.MEMBER,
        "Detach a volume, and close what is left of its connections.",
        f"{_ACTION} (os-detach)",
    ),
    policy.rule(
        FORCE_DETACH,
        policy.ADMIN,
        "Detach a volume whatever state its attachment is in.",
        f"{_ACTION} (os-force_detach)",
    ),
]

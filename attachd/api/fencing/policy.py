# SPDX-License-Identifier: Apache-2.0
"""Policy of fencing and draining."""

from attachd.api import policy_rules

GET = "volume:host_get"
FENCE = "volume:host_fence"
UNFENCE = "volume:host_unfence"
DRAIN = "volume:host_drain"
RESUME = "volume:host_resume"
CLAIM = "volume:host_claim"
FORCE_ATTACH = "volume:attachment_force_attach"
FORCE_ATTACH_ASSERTED = "volume:attachment_force_attach_asserted"

RULES = [
    policy_rules.rule(
        GET,
        policy_rules.ADMIN,
        "List the hosts that are fenced or drained, and show whether a host is.",
        "GET /hosts",
        "GET /hosts/{host}",
    ),
    policy_rules.rule(
        FENCE,
        policy_rules.ADMIN,
        "Fence a host: end its access to all volumes, and keep it from attaching any.",
        "POST /hosts/{host}/fence",
    ),
    policy_rules.rule(
        UNFENCE,
        policy_rules.ADMIN,
        "Lift the fence of a host.",
        "POST /hosts/{host}/unfence",
    ),
    policy_rules.rule(
        DRAIN,
        policy_rules.ADMIN,
        "Take a host out of service, and detach attachments of any project from it.",
        "POST /hosts/{host}/drain",
    ),
    policy_rules.rule(
        RESUME,
        policy_rules.ADMIN,
        "Put a host back into service.",
        "POST /hosts/{host}/resume",
    ),
    policy_rules.rule(
        CLAIM,
        policy_rules.ADMIN,
        "Assign initiators to a host, which another host may have.",
        "POST /hosts/{host}/claim",
    ),
    policy_rules.rule(
        FORCE_ATTACH,
        policy_rules.ADMIN,
        "Fence an attachment, and create another one instead of it.",
        "POST /attachments",
    ),
    policy_rules.rule(
        FORCE_ATTACH_ASSERTED,
        policy_rules.ADMIN,
        "Do so also where the backend only says that the access has ended, and cannot prove it.",
        "POST /attachments",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Policy of fencing and draining."""

from attachd.api import policy

GET = "volume:host_get"
FENCE = "volume:host_fence"
UNFENCE = "volume:host_unfence"
DRAIN = "volume:host_drain"
RESUME = "volume:host_resume"
CLAIM = "volume:host_claim"
FORCE_ATTACH = "volume:attachment_force_attach"
FORCE_ATTACH_ASSERTED = "volume:attachment_force_attach_asserted"

RULES = [
    policy.rule(
        GET,
        policy.ADMIN,
        "List the hosts that are fenced or drained, and show whether a host is.",
        "GET /hosts",
        "GET /hosts/{host}",
    ),
    policy.rule(
        FENCE,
        policy.ADMIN,
        "Fence a host: end its access to all volumes, and keep it from attaching any.",
        "POST /hosts/{host}/fence",
    ),
    policy.rule(
        UNFENCE,
        policy.ADMIN,
        "Lift the fence of a host.",
        "POST /hosts/{host}/unfence",
    ),
    policy.rule(
        DRAIN,
        policy.ADMIN,
        "Take a host out of service, and detach attachments of any project from it.",
        "POST /hosts/{host}/drain",
    ),
    policy.rule(
        RESUME,
        policy.ADMIN,
        "Put a host back into service.",
        "POST /hosts/{host}/resume",
    ),
    policy.rule(
        CLAIM,
        policy.ADMIN,
        "Assign initiators to a host, which another host may have.",
        "POST /hosts/{host}/claim",
    ),
    policy.rule(
        FORCE_ATTACH,
        policy.ADMIN,
        "Fence an attachment, and create another one instead of it.",
        "POST /attachments",
    ),
    policy.rule(
        FORCE_ATTACH_ASSERTED,
        policy.ADMIN,
        "Do so also where the backend only says that the access has ended, and cannot prove it.",
        "POST /attachments",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Who may do what to volumes by actions."""

from attachd.api import policy

EXTEND = "volume:extend"
EXTEND_ATTACHED = "volume:extend_attached_volume"
RESET_STATUS = "volume_extension:volume_admin_actions:reset_status"

_ACTION = "POST /volumes/{volume_id}/action"

RULES = [
    policy.rule(EXTEND, policy.MEMBER, "Let a volume grow.", f"{_ACTION} (os-extend)"),
    policy.rule(
        EXTEND_ATTACHED,
        policy.MEMBER,
        "Let a volume grow while it is attached.",
        f"{_ACTION} (os-extend)",
    ),
    policy.rule(
        RESET_STATUS,
        policy.ADMIN,
        "Set a volume's status by hand.",
        f"{_ACTION} (os-reset_status)",
    ),
]

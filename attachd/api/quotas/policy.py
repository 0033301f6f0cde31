# SPDX-License-Identifier: Apache-2.0
"""Policy rules of quotas."""

from attachd.api import policy_rules

SHOW = "volume_extension:quotas:show"
UPDATE = "volume_extension:quotas:update"
DELETE = "volume_extension:quotas:delete"
GET_CLASS = "volume_extension:quota_classes:get"
UPDATE_CLASS = "volume_extension:quota_classes:update"

_ITEM = "/os-quota-sets/{target_project_id}"
_CLASS = "/os-quota-class-sets/{class_name}"

RULES = [
    policy_rules.rule(
        SHOW,
        policy_rules.READER,
        "See a project's quotas, their usage, and the default quotas.",
        f"GET {_ITEM}",
        f"GET {_ITEM}/defaults",
    ),
    policy_rules.rule(UPDATE, policy_rules.ADMIN, "Set a project's quotas.", f"PUT {_ITEM}"),
    policy_rules.rule(
        DELETE, policy_rules.ADMIN, "Reset a project's quotas to the defaults.", f"DELETE {_ITEM}"
    ),
    policy_rules.rule(
        GET_CLASS, policy_rules.ADMIN, "See the quotas of a class.", f"GET {_CLASS}"
    ),
    policy_rules.rule(
        UPDATE_CLASS, policy_rules.ADMIN, "Set the quotas of a class.", f"PUT {_CLASS}"
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Policy rules of QoS specs."""

from attachd.api import policy_rules

GET_ALL = "volume_extension:qos_specs_manage:get_all"
GET = "volume_extension:qos_specs_manage:get"
CREATE = "volume_extension:qos_specs_manage:create"
UPDATE = "volume_extension:qos_specs_manage:update"
DELETE = "volume_extension:qos_specs_manage:delete"

_ITEM = "/qos-specs/{qos_specs_id}"

RULES = [
    policy_rules.rule(
        GET_ALL,
        policy_rules.ADMIN,
        "List QoS specs, or the volume types that have them.",
        "GET /qos-specs",
        f"GET {_ITEM}/associations",
    ),
    policy_rules.rule(GET, policy_rules.ADMIN, "Show QoS specs.", f"GET {_ITEM}"),
    policy_rules.rule(CREATE, policy_rules.ADMIN, "Create QoS specs.", "POST /qos-specs"),
    policy_rules.rule(
        UPDATE,
        policy_rules.ADMIN,
        "Change QoS specs, or which volume types have them.",
        f"PUT {_ITEM}",
        f"GET {_ITEM}/associate",
        f"GET {_ITEM}/disassociate",
        f"GET {_ITEM}/disassociate_all",
    ),
    policy_rules.rule(
        DELETE,
        policy_rules.ADMIN,
        "Delete QoS specs, or keys of them.",
        f"DELETE {_ITEM}",
        f"PUT {_ITEM}/delete_keys",
    ),
]

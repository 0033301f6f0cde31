# SPDX-License-Identifier: Apache-2.0
"""Policy rules of volume types: their extra specs, access and encryption, and default types."""

from attachd.api import policy_rules

CREATE = "volume_extension:type_create"
UPDATE = "volume_extension:type_update"
DELETE = "volume_extension:type_delete"
GET = "volume_extension:type_get"
GET_ALL = "volume_extension:type_get_all"
SEE_SPECS = "volume_extension:access_types_extra_specs"
SEE_QOS = "volume_extension:access_types_qos_specs_id"
LIST_SPECS = "volume_extension:types_extra_specs:index"
GET_SPEC = "volume_extension:types_extra_specs:show"
CREATE_SPECS = "volume_extension:types_extra_specs:create"
UPDATE_SPEC = "volume_extension:types_extra_specs:update"
DELETE_SPEC = "volume_extension:types_extra_specs:delete"
READ_SENSITIVE = "volume_extension:types_extra_specs:read_sensitive"
SEE_ACCESS = "volume_extension:volume_type_access"
LIST_ACCESS = "volume_extension:volume_type_access:get_all_for_type"
ADD_ACCESS = "volume_extension:volume_type_access:addProjectAccess"
REMOVE_ACCESS = "volume_extension:volume_type_access:removeProjectAccess"
GET_ENCRYPTION = "volume_extension:volume_type_encryption:get"
CREATE_ENCRYPTION = "volume_extension:volume_type_encryption:create"
UPDATE_ENCRYPTION = "volume_extension:volume_type_encryption:update"
DELETE_ENCRYPTION = "volume_extension:volume_type_encryption:delete"
SET_DEFAULT = "volume_extension:default_set_or_update"
GET_DEFAULT = "volume_extension:default_get"
LIST_DEFAULTS = "volume_extension:default_get_all"
UNSET_DEFAULT = "volume_extension:default_unset"

_ITEM = "/types/{type_id}"
_SPECS = f"{_ITEM}/extra_specs"
_SPEC = f"{_SPECS}/{{key}}"
_ACTION = f"POST {_ITEM}/action"
_ENCRYPTION = f"{_ITEM}/encryption"
_ENCRYPTION_KEY = f"{_ENCRYPTION}/{{key}}"
_SHOWN = ("GET /types", f"GET {_ITEM}")
_DEFAULT = "/default-types/{default_project_id}"

RULES = [
    policy_rules.rule(CREATE, policy_rules.ADMIN, "Create a volume type.", "POST /types"),
    policy_rules.rule(UPDATE, policy_rules.ADMIN, "Change a volume type.", f"PUT {_ITEM}"),
    policy_rules.rule(DELETE, policy_rules.ADMIN, "Delete a volume type.", f"DELETE {_ITEM}"),
    policy_rules.rule(GET, policy_rules.READER, "Show a volume type.", f"GET {_ITEM}"),
    policy_rules.rule(GET_ALL, policy_rules.READER, "List volume types.", "GET /types"),
    policy_rules.rule(SEE_SPECS, policy_rules.READER, "See extra specs in volume types.", *_SHOWN),
    policy_rules.rule(SEE_QOS, policy_rules.ADMIN, "See qos_specs_id in volume types.", *_SHOWN),
    policy_rules.rule(
        LIST_SPECS, policy_rules.READER, "List a type's extra specs.", f"GET {_SPECS}"
    ),
    policy_rules.rule(GET_SPEC, policy_rules.READER, "Show an extra spec.", f"GET {_SPEC}"),
    policy_rules.rule(CREATE_SPECS, policy_rules.ADMIN, "Set extra specs.", f"POST {_SPECS}"),
    policy_rules.rule(UPDATE_SPEC, policy_rules.ADMIN, "Change an extra spec.", f"PUT {_SPEC}"),
    policy_rules.rule(DELETE_SPEC, policy_rules.ADMIN, "Remove an extra spec.", f"DELETE {_SPEC}"),
    policy_rules.rule(
        READ_SENSITIVE,
        policy_rules.ADMIN,
        "See also the extra specs that describe how the storage is built.",
        *_SHOWN,
        f"GET {_SPECS}",
        f"GET {_SPEC}",
    ),
    policy_rules.rule(
        SEE_ACCESS,
        policy_rules.MEMBER,
        "See os-volume-type-access:is_public in volume types.",
        *_SHOWN,
        "POST /types",
    ),
    policy_rules.rule(
        LIST_ACCESS,
        policy_rules.ADMIN,
        "List the projects that may use a private volume type.",
        f"GET {_ITEM}/os-volume-type-access",
    ),
    policy_rules.rule(
        ADD_ACCESS,
        policy_rules.ADMIN,
        "Give a project access to a private volume type.",
        f"{_ACTION} (addProjectAccess)",
    ),
    policy_rules.rule(
        REMOVE_ACCESS,
        policy_rules.ADMIN,
        "Remove a project's access to a private volume type.",
        f"{_ACTION} (removeProjectAccess)",
    ),
    policy_rules.rule(
        GET_ENCRYPTION,
        policy_rules.ADMIN,
        "See how volumes of a type are encrypted.",
        f"GET {_ENCRYPTION}",
        f"GET {_ENCRYPTION_KEY}",
    ),
    policy_rules.rule(
        CREATE_ENCRYPTION,
        policy_rules.ADMIN,
        "Ask for volumes of a type to be encrypted.",
        f"POST {_ENCRYPTION}",
    ),
    policy_rules.rule(
        UPDATE_ENCRYPTION,
        policy_rules.ADMIN,
        "Ask for another encryption of a type.",
        f"PUT {_ENCRYPTION_KEY}",
    ),
    policy_rules.rule(
        DELETE_ENCRYPTION,
        policy_rules.ADMIN,
        "Ask for volumes of a type not to be encrypted.",
        f"DELETE {_ENCRYPTION_KEY}",
    ),
    policy_rules.rule(
        SET_DEFAULT, policy_rules.ADMIN, "Set a project's default volume type.", f"PUT {_DEFAULT}"
    ),
    policy_rules.rule(
        GET_DEFAULT, policy_rules.ADMIN, "Show a project's default volume type.", f"GET {_DEFAULT}"
    ),
    policy_rules.rule(
        LIST_DEFAULTS,
        policy_rules.ADMIN,
        "List the default volume types of projects.",
        "GET /default-types",
    ),
    policy_rules.rule(
        UNSET_DEFAULT,
        policy_rules.ADMIN,
        "Unset a project's default volume type.",
        f"DELETE {_DEFAULT}",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Policy rules of volumes, their metadata and their actions."""

from attachd.api import policy_rules

CREATE = "volume:create"
GET = "volume:get"
GET_ALL = "volume:get_all"
UPDATE = "volume:update"
DELETE = "volume:delete"
FORCE_DELETE = "volume:force_delete"
MULTIATTACH = "volume:multiattach"
HOST_ATTRIBUTE = "volume_extension:volume_host_attribute"
PROJECT_ATTRIBUTE = "volume_extension:volume_tenant_attribute"
MIGRATION_ATTRIBUTE = "volume_extension:volume_mig_status_attribute"
GET_METADATA = "volume:get_volume_metadata"
CREATE_METADATA = "volume:create_volume_metadata"
UPDATE_METADATA = "volume:update_volume_metadata"
DELETE_METADATA = "volume:delete_volume_metadata"
SHOW_IMAGE_METADATA = "volume_extension:volume_image_metadata:show"
ENCRYPTION = "volume_extension:volume_encryption_metadata"

GET_PERSISTENT_RESERVATION = "volume:get_persistent_reservation"
EXTEND = "volume:extend"
EXTEND_ATTACHED = "volume:extend_attached_volume"
RETYPE = "volume:retype"
RESET_STATUS = "volume_extension:volume_admin_actions:reset_status"
UPDATE_READONLY = "volume:update_readonly_flag"
FORCE_DELETE_ACTION = "volume_extension:volume_admin_actions:force_delete"
EXTEND_COMPLETION = "volume_extension:volume_admin_actions:extend_volume_completion"
MIGRATE = "volume_extension:volume_admin_actions:migrate_volume"
MIGRATE_COMPLETION = "volume_extension:volume_admin_actions:migrate_volume_completion"
MANAGE = "volume_extension:volume_manage"
UNMANAGE = "volume_extension:volume_unmanage"
LIST_MANAGEABLE = "volume_extension:list_manageable"
UPLOAD_IMAGE = "volume_extension:volume_actions:upload_image"
UPLOAD_PUBLIC = "volume_extension:volume_actions:upload_public"
REIMAGE = "volume:reimage"
REIMAGE_RESERVED = "volume:reimage_reserved"
REVERT = "volume:revert_to_snapshot"
SET_IMAGE_METADATA = "volume_extension:volume_image_metadata:set"
REMOVE_IMAGE_METADATA = "volume_extension:volume_image_metadata:remove"

_ITEM = "/volumes/{volume_id}"
_PAIRS = f"{_ITEM}/metadata"
_PAIR = f"{_PAIRS}/{{key}}"
_SHOWN = (f"GET {_ITEM}", "GET /volumes/detail")
_ACTION = f"POST {_ITEM}/action"

RULES = [
    policy_rules.rule(CREATE, policy_rules.MEMBER, "Create a volume.", "POST /volumes"),
    policy_rules.rule(
        MULTIATTACH,
        policy_rules.MEMBER,
        "Create a multiattach volume, and attach it while it has other attachments. Existing "
        "attachments stay when the rule is changed.",
        "POST /volumes",
        f"{_ACTION} (os-retype)",
        "POST /attachments",
        f"{_ACTION} (os-reserve)",
        f"{_ACTION} (os-attach)",
        f"{_ACTION} (os-initialize_connection)",
    ),
    policy_rules.rule(GET, policy_rules.READER, "Show a volume.", f"GET {_ITEM}"),
    policy_rules.rule(
        GET_ALL,
        policy_rules.READER,
        "List volumes, or show their number and total size.",
        "GET /volumes",
        "GET /volumes/detail",
        "GET /volumes/summary",
    ),
    policy_rules.rule(
        UPDATE,
        policy_rules.MEMBER,
        "Change a volume's name or description, or whether it is bootable.",
        f"PUT {_ITEM}",
        f"{_ACTION} (os-set_bootable)",
    ),
    policy_rules.rule(DELETE, policy_rules.MEMBER, "Delete a volume.", f"DELETE {_ITEM}"),
    policy_rules.rule(
        FORCE_DELETE,
        policy_rules.ADMIN,
        "Delete a volume in any status, unless it is attached.",
        f"DELETE {_ITEM}",
    ),
    policy_rules.rule(HOST_ATTRIBUTE, policy_rules.ADMIN, "See the backend of a volume.", *_SHOWN),
    policy_rules.rule(
        PROJECT_ATTRIBUTE, policy_rules.READER, "See the project of a volume.", *_SHOWN
    ),
    policy_rules.rule(
        MIGRATION_ATTRIBUTE, policy_rules.ADMIN, "See the migration status of a volume.", *_SHOWN
    ),
    policy_rules.rule(
        SHOW_IMAGE_METADATA,
        policy_rules.READER,
        "See the image metadata of a volume.",
        *_SHOWN,
    ),
    policy_rules.rule(
        GET_METADATA,
        policy_rules.READER,
        "Show a volume's metadata.",
        f"GET {_PAIRS}",
        f"GET {_PAIR}",
        f"{_ACTION} (os-show_image_metadata)",
    ),
    policy_rules.rule(
        CREATE_METADATA, policy_rules.MEMBER, "Add to a volume's metadata.", f"POST {_PAIRS}"
    ),
    policy_rules.rule(
        UPDATE_METADATA,
        policy_rules.MEMBER,
        "Replace a volume's metadata, or one pair of it.",
        f"PUT {_PAIRS}",
        f"PUT {_PAIR}",
    ),
    policy_rules.rule(
        DELETE_METADATA,
        policy_rules.MEMBER,
        "Remove a pair of a volume's metadata.",
        f"DELETE {_PAIR}",
    ),
    policy_rules.rule(
        ENCRYPTION,
        policy_rules.READER,
        "See how a volume is encrypted: no volume is.",
        "GET /volumes/{volume_id}/encryption",
        "GET /volumes/{volume_id}/encryption/{key}",
    ),
    policy_rules.rule(
        GET_PERSISTENT_RESERVATION,
        policy_rules.READER,
        "Show which host reserves a volume.",
        f"GET {_ITEM}/persistent_reservation",
    ),
    policy_rules.rule(EXTEND, policy_rules.MEMBER, "Extend a volume.", f"{_ACTION} (os-extend)"),
    policy_rules.rule(
        EXTEND_ATTACHED,
        policy_rules.MEMBER,
        "Extend a volume while it is attached.",
        f"{_ACTION} (os-extend)",
    ),
    policy_rules.rule(
        RETYPE, policy_rules.MEMBER, "Give a volume another type.", f"{_ACTION} (os-retype)"
    ),
    policy_rules.rule(
        REVERT,
        policy_rules.MEMBER,
        "Revert a volume to its latest snapshot.",
        f"{_ACTION} (revert)",
    ),
    policy_rules.rule(
        RESET_STATUS,
        policy_rules.ADMIN,
        "Reset a volume's status.",
        f"{_ACTION} (os-reset_status)",
    ),
    policy_rules.rule(
        UPDATE_READONLY,
        policy_rules.MEMBER,
        "Make a volume read-only, or writable again.",
        f"{_ACTION} (os-update_readonly_flag)",
    ),
    policy_rules.rule(
        SET_IMAGE_METADATA,
        policy_rules.MEMBER,
        "Set the image metadata of a volume.",
        f"{_ACTION} (os-set_image_metadata)",
    ),
    policy_rules.rule(
        REMOVE_IMAGE_METADATA,
        policy_rules.MEMBER,
        "Remove image metadata of a volume.",
        f"{_ACTION} (os-unset_image_metadata)",
    ),
    policy_rules.rule(
        FORCE_DELETE_ACTION,
        policy_rules.ADMIN,
        "Delete a volume in any status, unless it is attached.",
        f"{_ACTION} (os-force_delete)",
    ),
    policy_rules.rule(
        EXTEND_COMPLETION,
        policy_rules.ADMIN,
        "Confirm that the user of a volume has seen its new size.",
        f"{_ACTION} (os-extend_volume_completion)",
    ),
    policy_rules.rule(
        MANAGE,
        policy_rules.ADMIN,
        "Make a volume of an existing object of a backend.",
        "POST /manageable_volumes",
        "POST /os-volume-manage",
    ),
    policy_rules.rule(
        UNMANAGE,
        policy_rules.ADMIN,
        "Stop managing a volume, without deleting its data.",
        f"{_ACTION} (os-unmanage)",
    ),
    policy_rules.rule(
        LIST_MANAGEABLE,
        policy_rules.ADMIN,
        "List the objects of a backend that can be managed.",
        "GET /manageable_volumes",
        "GET /manageable_volumes/detail",
        "GET /os-volume-manage",
        "GET /os-volume-manage/detail",
    ),
    policy_rules.rule(
        UPLOAD_IMAGE,
        policy_rules.MEMBER,
        "Create an image from a volume.",
        f"{_ACTION} (os-volume_upload_image)",
    ),
    policy_rules.rule(
        UPLOAD_PUBLIC,
        policy_rules.ADMIN,
        "Create a public image from a volume.",
        f"{_ACTION} (os-volume_upload_image)",
    ),
    policy_rules.rule(
        REIMAGE,
        policy_rules.MEMBER,
        "Write an image to a volume that is available or in error.",
        f"{_ACTION} (os-reimage)",
    ),
    policy_rules.rule(
        REIMAGE_RESERVED,
        policy_rules.MEMBER,
        "Write an image to a volume that is reserved.",
        f"{_ACTION} (os-reimage)",
    ),
    # These actions are refused.  The rules decide who gets that answer, and keep policy files
    # of other deployments valid.
    policy_rules.rule(
        MIGRATE, policy_rules.ADMIN, "Migrate a volume: refused.", f"{_ACTION} (os-migrate_volume)"
    ),
    policy_rules.rule(
        MIGRATE_COMPLETION,
        policy_rules.ADMIN,
        "Complete the migration of a volume: refused.",
        f"{_ACTION} (os-migrate_volume_completion)",
    ),
]

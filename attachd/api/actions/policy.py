# SPDX-License-Identifier: Apache-2.0
"""Policy rules of volume actions."""

from attachd.api import policy
from attachd.api.volumes import policy as volume_policy

MULTIATTACH = volume_policy.MULTIATTACH
"""A rule of volumes, which applies when a new type makes a volume multiattach."""

EXTEND = "volume:extend"
EXTEND_ATTACHED = "volume:extend_attached_volume"
RETYPE = "volume:retype"
RESET_STATUS = "volume_extension:volume_admin_actions:reset_status"
UPDATE_READONLY = "volume:update_readonly_flag"
FORCE_DELETE = "volume_extension:volume_admin_actions:force_delete"
EXTEND_COMPLETION = "volume_extension:volume_admin_actions:extend_volume_completion"
MIGRATE = "volume_extension:volume_admin_actions:migrate_volume"
MIGRATE_COMPLETION = "volume_extension:volume_admin_actions:migrate_volume_completion"
UNMANAGE = "volume_extension:volume_unmanage"
UPLOAD_IMAGE = "volume_extension:volume_actions:upload_image"
REIMAGE = "volume:reimage"
REVERT = "volume:revert_to_snapshot"
SET_IMAGE_METADATA = "volume_extension:volume_image_metadata:set"
REMOVE_IMAGE_METADATA = "volume_extension:volume_image_metadata:remove"

_ACTION = "POST /volumes/{volume_id}/action"

RULES = [
    policy.rule(EXTEND, policy.MEMBER, "Extend a volume.", f"{_ACTION} (os-extend)"),
    policy.rule(
        EXTEND_ATTACHED,
        policy.MEMBER,
        "Extend a volume while it is attached.",
        f"{_ACTION} (os-extend)",
    ),
    policy.rule(RETYPE, policy.MEMBER, "Give a volume another type.", f"{_ACTION} (os-retype)"),
    policy.rule(
        RESET_STATUS,
        policy.ADMIN,
        "Reset a volume's status.",
        f"{_ACTION} (os-reset_status)",
    ),
    policy.rule(
        UPDATE_READONLY,
        policy.MEMBER,
        "Make a volume read-only, or writable again.",
        f"{_ACTION} (os-update_readonly_flag)",
    ),
    policy.rule(
        SET_IMAGE_METADATA,
        policy.MEMBER,
        "Set the image metadata of a volume.",
        f"{_ACTION} (os-set_image_metadata)",
    ),
    policy.rule(
        REMOVE_IMAGE_METADATA,
        policy.MEMBER,
        "Remove image metadata of a volume.",
        f"{_ACTION} (os-unset_image_metadata)",
    ),
    policy.rule(
        FORCE_DELETE,
        policy.ADMIN,
        "Delete a volume in any status, unless it is attached.",
        f"{_ACTION} (os-force_delete)",
    ),
    policy.rule(
        EXTEND_COMPLETION,
        policy.ADMIN,
        "Confirm that the user of a volume has seen its new size.",
        f"{_ACTION} (os-extend_volume_completion)",
    ),
    # These actions are refused.  The rules decide who gets that answer, and keep policy files
    # of other deployments valid.
    policy.rule(
        MIGRATE, policy.ADMIN, "Migrate a volume: refused.", f"{_ACTION} (os-migrate_volume)"
    ),
    policy.rule(
        MIGRATE_COMPLETION,
        policy.ADMIN,
        "Complete the migration of a volume: refused.",
        f"{_ACTION} (os-migrate_volume_completion)",
    ),
    policy.rule(
        UNMANAGE,
        policy.ADMIN,
        "Stop managing a volume without deleting its data: refused.",
        f"{_ACTION} (os-unmanage)",
    ),
    policy.rule(
        UPLOAD_IMAGE,
        policy.MEMBER,
        "Create an image from a volume: refused.",
        f"{_ACTION} (os-volume_upload_image)",
    ),
    policy.rule(
        REIMAGE,
        policy.MEMBER,
        "Write an image to a volume: refused.",
        f"{_ACTION} (os-reimage)",
    ),
    policy.rule(
        REVERT,
        policy.MEMBER,
        "Revert a volume to its latest snapshot: refused.",
        f"{_ACTION} (revert)",
    ),
]

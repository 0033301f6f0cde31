# SPDX-License-Identifier: Apache-2.0
"""Who may do what to volumes by actions."""

from attachd.api import policy
from attachd.api.volumes import policy as volume_policy

MULTIATTACH = volume_policy.MULTIATTACH
"""A rule of volumes, which counts when a type makes one such."""

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
    policy.rule(EXTEND, policy.MEMBER, "Let a volume grow.", f"{_ACTION} (os-extend)"),
    policy.rule(
        EXTEND_ATTACHED,
        policy.MEMBER,
        "Let a volume grow while it is attached.",
        f"{_ACTION} (os-extend)",
    ),
    policy.rule(RETYPE, policy.MEMBER, "Give a volume another type.", f"{_ACTION} (os-retype)"),
    policy.rule(
        RESET_STATUS,
        policy.ADMIN,
        "Set a volume's status by hand.",
        f"{_ACTION} (os-reset_status)",
    ),
    policy.rule(
        UPDATE_READONLY,
        policy.MEMBER,
        "Let hosts only read a volume, or write to it again.",
        f"{_ACTION} (os-update_readonly_flag)",
    ),
    policy.rule(
        SET_IMAGE_METADATA,
        policy.MEMBER,
        "Set what is known of the image on a volume.",
        f"{_ACTION} (os-set_image_metadata)",
    ),
    policy.rule(
        REMOVE_IMAGE_METADATA,
        policy.MEMBER,
        "Forget a property of the image on a volume.",
        f"{_ACTION} (os-unset_image_metadata)",
    ),
    policy.rule(
        FORCE_DELETE,
        policy.ADMIN,
        "Delete a volume whatever its status is, unless it is attached.",
        f"{_ACTION} (os-force_delete)",
    ),
    policy.rule(
        EXTEND_COMPLETION,
        policy.ADMIN,
        "Say that whoever uses a volume has seen it grow.",
        f"{_ACTION} (os-extend_volume_completion)",
    ),
    # Nobody may do these here; the rules decide who is told so, and keep their names for
    # policies that are brought along.
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
        "Forget a volume without deleting its data: refused.",
        f"{_ACTION} (os-unmanage)",
    ),
    policy.rule(
        UPLOAD_IMAGE,
        policy.MEMBER,
        "Make an image of a volume: refused.",
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
        "Take a volume back to its latest snapshot: refused.",
        f"{_ACTION} (revert)",
    ),
]

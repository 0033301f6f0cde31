# SPDX-License-Identifier: Apache-2.0
"""Policy rules of volumes and their metadata."""

from attachd.api import policy

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

_ITEM = "/volumes/{volume_id}"
_PAIRS = f"{_ITEM}/metadata"
_PAIR = f"{_PAIRS}/{{key}}"
_SHOWN = (f"GET {_ITEM}", "GET /volumes/detail")

RULES = [
    policy.rule(CREATE, policy.MEMBER, "Create a volume.", "POST /volumes"),
    policy.rule(
        MULTIATTACH,
        policy.MEMBER,
        "Create a multiattach volume, and attach it while it has other attachments. Existing "
        "attachments stay when the rule is changed.",
        "POST /volumes",
        f"POST {_ITEM}/action (os-retype)",
        "POST /attachments",
        f"POST {_ITEM}/action (os-reserve)",
        f"POST {_ITEM}/action (os-attach)",
        f"POST {_ITEM}/action (os-initialize_connection)",
    ),
    policy.rule(GET, policy.READER, "Show a volume.", f"GET {_ITEM}"),
    policy.rule(
        GET_ALL,
        policy.READER,
        "List volumes, or show their number and total size.",
        "GET /volumes",
        "GET /volumes/detail",
        "GET /volumes/summary",
    ),
    policy.rule(
        UPDATE,
        policy.MEMBER,
        "Change a volume's name or description, or whether it is bootable.",
        f"PUT {_ITEM}",
        f"POST {_ITEM}/action (os-set_bootable)",
    ),
    policy.rule(DELETE, policy.MEMBER, "Delete a volume.", f"DELETE {_ITEM}"),
    policy.rule(
        FORCE_DELETE,
        policy.ADMIN,
        "Delete a volume in any status, unless it is attached.",
        f"DELETE {_ITEM}",
    ),
    policy.rule(HOST_ATTRIBUTE, policy.ADMIN, "See the backend of a volume.", *_SHOWN),
    policy.rule(PROJECT_ATTRIBUTE, policy.READER, "See the project of a volume.", *_SHOWN),
    policy.rule(
        MIGRATION_ATTRIBUTE, policy.ADMIN, "See the migration status of a volume.", *_SHOWN
    ),
    policy.rule(
        SHOW_IMAGE_METADATA,
        policy.READER,
        "See the image metadata of a volume.",
        *_SHOWN,
    ),
    policy.rule(
        GET_METADATA,
        policy.READER,
        "Show a volume's metadata.",
        f"GET {_PAIRS}",
        f"GET {_PAIR}",
        f"POST {_ITEM}/action (os-show_image_metadata)",
    ),
    policy.rule(CREATE_METADATA, policy.MEMBER, "Add to a volume's metadata.", f"POST {_PAIRS}"),
    policy.rule(
        UPDATE_METADATA,
        policy.MEMBER,
        "Replace a volume's metadata, or one pair of it.",
        f"PUT {_PAIRS}",
        f"PUT {_PAIR}",
    ),
    policy.rule(
        DELETE_METADATA,
        policy.MEMBER,
        "Remove a pair of a volume's metadata.",
        f"DELETE {_PAIR}",
    ),
    policy.rule(
        ENCRYPTION,
        policy.READER,
        "See how a volume is encrypted: no volume is.",
        "GET /volumes/{volume_id}/encryption",
        "GET /volumes/{volume_id}/encryption/{key}",
    ),
]

# SPDX-License-Identifier: Apache-2.0
"""Policy rules of snapshots, their metadata and their actions."""

from attachd.api import policy_rules

CREATE = "volume:create_snapshot"
GET = "volume:get_snapshot"
GET_ALL = "volume:get_all_snapshots"
UPDATE = "volume:update_snapshot"
DELETE = "volume:delete_snapshot"
EXTENDED_ATTRIBUTES = "volume_extension:extended_snapshot_attributes"
GET_METADATA = "volume:get_snapshot_metadata"
UPDATE_METADATA = "volume:update_snapshot_metadata"
DELETE_METADATA = "volume:delete_snapshot_metadata"
RESET_STATUS = "volume_extension:snapshot_admin_actions:reset_status"
FORCE_DELETE = "volume_extension:snapshot_admin_actions:force_delete"
UPDATE_STATUS = "snapshot_extension:snapshot_actions:update_snapshot_status"
MANAGE = "snapshot_extension:snapshot_manage"
UNMANAGE = "snapshot_extension:snapshot_unmanage"
LIST_MANAGEABLE = "snapshot_extension:list_manageable"

_ITEM = "/snapshots/{snapshot_id}"
_PAIRS = f"{_ITEM}/metadata"
_PAIR = f"{_PAIRS}/{{key}}"
_ACTION = f"POST {_ITEM}/action"

RULES = [
    policy_rules.rule(CREATE, policy_rules.MEMBER, "Take a snapshot.", "POST /snapshots"),
    policy_rules.rule(GET, policy_rules.READER, "Show a snapshot.", f"GET {_ITEM}"),
    policy_rules.rule(
        GET_ALL,
        policy_rules.READER,
        "List snapshots.",
        "GET /snapshots",
        "GET /snapshots/detail",
    ),
    policy_rules.rule(
        UPDATE,
        policy_rules.MEMBER,
        "Change a snapshot's name or description.",
        f"PUT {_ITEM}",
    ),
    policy_rules.rule(DELETE, policy_rules.MEMBER, "Delete a snapshot.", f"DELETE {_ITEM}"),
    policy_rules.rule(
        EXTENDED_ATTRIBUTES,
        policy_rules.READER,
        "See the project of a snapshot, and how much of it is copied.",
        f"GET {_ITEM}",
        "GET /snapshots/detail",
    ),
    policy_rules.rule(
        GET_METADATA,
        policy_rules.READER,
        "Show a snapshot's metadata.",
        f"GET {_PAIRS}",
        f"GET {_PAIR}",
    ),
    policy_rules.rule(
        UPDATE_METADATA,
        policy_rules.MEMBER,
        "Change a snapshot's metadata.",
        f"POST {_PAIRS}",
        f"PUT {_PAIRS}",
        f"PUT {_PAIR}",
    ),
    policy_rules.rule(
        DELETE_METADATA,
        policy_rules.MEMBER,
        "Remove a pair of a snapshot's metadata.",
        f"DELETE {_PAIR}",
    ),
    policy_rules.rule(
        RESET_STATUS,
        policy_rules.ADMIN,
        "Reset a snapshot's status.",
        f"{_ACTION} (os-reset_status)",
    ),
    policy_rules.rule(
        FORCE_DELETE,
        policy_rules.ADMIN,
        "Delete a snapshot in any status.",
        f"{_ACTION} (os-force_delete)",
    ),
    policy_rules.rule(
        UPDATE_STATUS,
        policy_rules.MEMBER,
        "Set the status of a snapshot on which no manager works.",
        f"{_ACTION} (os-update_snapshot_status)",
    ),
    policy_rules.rule(
        MANAGE,
        policy_rules.ADMIN,
        "Make a snapshot of an existing object of a backend.",
        "POST /manageable_snapshots",
        "POST /os-snapshot-manage",
    ),
    policy_rules.rule(
        UNMANAGE,
        policy_rules.ADMIN,
        "Stop managing a snapshot, without deleting its data.",
        f"{_ACTION} (os-unmanage)",
    ),
    policy_rules.rule(
        LIST_MANAGEABLE,
        policy_rules.ADMIN,
        "List the objects of a backend that can become snapshots.",
        "GET /manageable_snapshots",
        "GET /manageable_snapshots/detail",
        "GET /os-snapshot-manage",
        "GET /os-snapshot-manage/detail",
    ),
]

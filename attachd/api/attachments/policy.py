# SPDX-License-Identifier: Apache-2.0
"""Policy rules of attachments."""

from attachd.api import policy_rules

CREATE = "volume:attachment_create"
CREATE_ON_HOST = "volume:attachment_create_on_host"
UPDATE = "volume:attachment_update"
COMPLETE = "volume:attachment_complete"
DELETE = "volume:attachment_delete"
OVERRIDE = "volume:attachment_delete_override"
FORCE = "volume:attachment_delete_force"
MOVE = "volume:attachment_move"
SHOW = "volume:attachment_get"
LIST = "volume:attachment_get_all"
BOOTABLE = "volume:multiattach_bootable_volume"
CONNECTION_INFO = "volume:attachment_connection_info"
CONNECTION_INFO_AGAIN = "volume:attachment_connection_info_again"

RULES_OF_FIELDS = {"host": CREATE_ON_HOST, "move_from": MOVE}
"""Fields of a creation that need another rule besides CREATE."""

RULES = [
    policy_rules.rule(
        CREATE,
        policy_rules.MEMBER,
        "Reserve a volume for a server, and connect it if a connector is given.",
        "POST /attachments",
        "POST /attachments/action (attach_set)",
    ),
    policy_rules.rule(
        CREATE_ON_HOST,
        f"{policy_rules.ADMIN} or {policy_rules.SERVICE}",
        "Have the agent of a host attach the volume there, by the name of the host.",
        "POST /attachments",
        "POST /attachments/action (attach_set)",
    ),
    policy_rules.rule(
        BOOTABLE,
        policy_rules.MEMBER,
        "Attach a bootable volume that is already attached.",
        "POST /attachments",
        "POST /volumes/{volume_id}/action (os-reserve)",
        "POST /volumes/{volume_id}/action (os-attach)",
        "POST /volumes/{volume_id}/action (os-initialize_connection)",
    ),
    policy_rules.rule(
        UPDATE,
        policy_rules.MEMBER,
        "Connect a reserved attachment.",
        "PUT /attachments/{attachment_id}",
    ),
    policy_rules.rule(
        COMPLETE,
        policy_rules.MEMBER,
        "Mark the volume of an attachment as in use.",
        "POST /attachments/{attachment_id}/action (os-complete)",
    ),
    policy_rules.rule(
        DELETE,
        policy_rules.MEMBER,
        "Disconnect and delete an attachment.",
        "DELETE /attachments/{attachment_id}",
        "POST /attachments/action (detach_set)",
    ),
    policy_rules.rule(
        OVERRIDE,
        policy_rules.ADMIN,
        "Delete an attachment without asking Compute whether a server uses it. The caller's "
        "reason is recorded.",
        "DELETE /attachments/{attachment_id}",
        "POST /volumes/{volume_id}/action (os-detach)",
        "POST /volumes/{volume_id}/action (os-force_detach)",
        "POST /volumes/{volume_id}/action (os-terminate_connection)",
        "DELETE /volumes/{volume_id}",
        "POST /volumes/{volume_id}/action (os-force_delete)",
    ),
    policy_rules.rule(
        FORCE,
        policy_rules.ADMIN,
        "Delete an attachment in any state, without asking Compute. The caller is recorded and "
        "its owner gets a message.",
        "DELETE /attachments/{attachment_id}",
    ),
    policy_rules.rule(
        MOVE,
        policy_rules.MEMBER,
        "Move an attachment to another host, and finish the move, which ends its access.",
        "POST /attachments",
        "POST /attachments/{attachment_id}/action (finish_move)",
    ),
    policy_rules.rule(
        SHOW,
        policy_rules.READER,
        "Show an attachment.",
        "GET /attachments/{attachment_id}",
    ),
    policy_rules.rule(
        CONNECTION_INFO,
        f"{policy_rules.MEMBER} or {policy_rules.SERVICE}",
        "See the secrets in connection_info, such as auth_password. Without this "
        "they are left out.",
        "POST /attachments",
        "PUT /attachments/{attachment_id}",
        "GET /attachments/{attachment_id}",
        "GET /attachments/detail",
    ),
    policy_rules.rule(
        CONNECTION_INFO_AGAIN,
        f"{policy_rules.MEMBER} or {policy_rules.SERVICE}",
        "See these secrets after the answer to the request that has connected the host. With "
        "rule:service_api, for example, only services do, and other callers see them once: who "
        "has lost that answer disconnects the host and connects it again.",
        "POST /attachments",
        "PUT /attachments/{attachment_id}",
        "GET /attachments/{attachment_id}",
        "GET /attachments/detail",
        "POST /volumes/{volume_id}/action (os-initialize_connection)",
    ),
    policy_rules.rule(
        LIST,
        policy_rules.READER,
        "List attachments.",
        "GET /attachments",
        "GET /attachments/detail",
    ),
]

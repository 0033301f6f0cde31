# SPDX-License-Identifier: Apache-2.0
"""Policy rules of attachments."""

from attachd.api import policy

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
    policy.rule(
        CREATE,
        policy.MEMBER,
        "Reserve a volume for a server, and connect it if a connector is given.",
        "POST /attachments",
    ),
    policy.rule(
        CREATE_ON_HOST,
        f"{policy.ADMIN} or {policy.SERVICE}",
        "Have the agent of a host attach the volume there, by the name of the host.",
        "POST /attachments",
    ),
    policy.rule(
        BOOTABLE,
        policy.MEMBER,
        "Attach a bootable volume that is already attached.",
        "POST /attachments",
        "POST /volumes/{volume_id}/action (os-reserve)",
        "POST /volumes/{volume_id}/action (os-attach)",
        "POST /volumes/{volume_id}/action (os-initialize_connection)",
    ),
    policy.rule(
        UPDATE,
        policy.MEMBER,
        "Connect a reserved attachment.",
        "PUT /attachments/{attachment_id}",
    ),
    policy.rule(
        COMPLETE,
        policy.MEMBER,
        "Mark the volume of an attachment as in use.",
        "POST /attachments/{attachment_id}/action (os-complete)",
    ),
    policy.rule(
        DELETE,
        policy.MEMBER,
        "Disconnect and delete an attachment.",
        "DELETE /attachments/{attachment_id}",
    ),
    policy.rule(
        OVERRIDE,
        policy.ADMIN,
        "Delete an attachment without asking Compute whether a server uses it. The caller's "
        "reason is recorded.",
        "DELETE /attachments/{attachment_id}",
        "POST /volumes/{volume_id}/action (os-detach)",
        "POST /volumes/{volume_id}/action (os-force_detach)",
        "POST /volumes/{volume_id}/action (os-terminate_connection)",
        "DELETE /volumes/{volume_id}",
        "POST /volumes/{volume_id}/action (os-force_delete)",
    ),
    policy.rule(
        FORCE,
        policy.ADMIN,
        "Delete an attachment in any state, without asking Compute. The caller is recorded and "
        "its owner gets a message.",
        "DELETE /attachments/{attachment_id}",
    ),
    policy.rule(
        MOVE,
        policy.MEMBER,
        "Move an attachment to another host, and finish the move, which ends its access.",
        "POST /attachments",
        "POST /attachments/{attachment_id}/action (finish_move)",
    ),
    policy.rule(
        SHOW,
        policy.READER,
        "Show an attachment.",
        "GET /attachments/{attachment_id}",
    ),
    policy.rule(
        CONNECTION_INFO,
        f"{policy.MEMBER} or {policy.SERVICE}",
        "See the secrets in connection_info, such as auth_password. Without this "
        "they are left out.",
        "POST /attachments",
        "PUT /attachments/{attachment_id}",
        "GET /attachments/{attachment_id}",
        "GET /attachments/detail",
    ),
    policy.rule(
        CONNECTION_INFO_AGAIN,
        f"{policy.MEMBER} or {policy.SERVICE}",
        "See these secrets after the answer to the request that has connected the host. With "
        "rule:service_api, for example, only services do, and other callers see them once: who "
        "has lost that answer disconnects the host and connects it again.",
        "POST /attachments",
        "PUT /attachments/{attachment_id}",
        "GET /attachments/{attachment_id}",
        "GET /attachments/detail",
        "POST /volumes/{volume_id}/action (os-initialize_connection)",
    ),
    policy.rule(
        LIST,
        policy.READER,
        "List attachments.",
        "GET /attachments",
        "GET /attachments/detail",
    ),
]

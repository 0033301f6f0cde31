# SPDX-License-Identifier: Apache-2.0
"""Who may do what with attachments."""

from attachd.api import policy

CREATE = "volume:attachment_create"
UPDATE = "volume:attachment_update"
COMPLETE = "volume:attachment_complete"
DELETE = "volume:attachment_delete"
SHOW = "volume:attachment_get"
LIST = "volume:attachment_get_all"
BOOTABLE = "volume:multiattach_bootable_volume"

RULES = [
    policy.rule(
        CREATE,
        policy.MEMBER,
        "Reserve a volume for a server, and connect it if a connector is given.",
        "POST /attachments",
    ),
    policy.rule(
        BOOTABLE,
        policy.MEMBER,
        "Attach a bootable volume once more while it is attached.",
        "POST /attachments",
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
        "Say that the volume of an attachment is in use now.",
        "POST /attachments/{attachment_id}/action (os-complete)",
    ),
    policy.rule(
        DELETE,
        policy.MEMBER,
        "Disconnect and delete an attachment.",
        "DELETE /attachments/{attachment_id}",
    ),
    policy.rule(
        SHOW,
        policy.READER,
        "Look at an attachment, with all that is needed to connect to the volume.",
        "GET /attachments/{attachment_id}",
    ),
    policy.rule(
        LIST,
        policy.READER,
        "List attachments.",
        "GET /attachments",
        "GET /attachments/detail",
    ),
]

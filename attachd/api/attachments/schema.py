# SPDX-License-Identifier: Apache-2.0
"""What bodies of requests on attachments look like; used by handlers.py."""

from typing import Final

from attachd.api import fields
from attachd.api import microversions as mv

UUID: Final[fields.Schema] = {"type": "string", "format": "uuid"}

_CREATE: Final[dict[str, fields.Schema]] = {
    "volume_uuid": UUID,
    "instance_uuid": UUID,
    # An empty connector, as cinderclient sends it, only reserves.
    "connector": {"type": ["object", "null"]},
}
_MODE: Final[dict[str, fields.Schema]] = {"mode": {"type": "string", "enum": ["rw", "ro"]}}

CREATE: Final = [
    (mv.NEW_ATTACH, fields.enclosed("attachment", fields.fields(_CREATE, "volume_uuid"))),
    (
        mv.ATTACHMENT_CREATE_MODE_ARG,
        fields.enclosed("attachment", fields.fields({**_CREATE, **_MODE}, "volume_uuid")),
    ),
]
UPDATE: Final = fields.enclosed(
    "attachment",
    fields.fields({"connector": {"type": "object", "minProperties": 1}}, "connector"),
)

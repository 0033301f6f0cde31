# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of a volume's actions."""

from typing import Final

from attachd.api.fields import BOOLEAN, METADATA, OPTIONAL_TEXT, SIZE, TEXT, Schema, fields

EXTEND: Final = fields({"new_size": SIZE}, "new_size")

RESET: Final[Schema] = {
    **fields(dict.fromkeys(("status", "attach_status", "migration_status"), OPTIONAL_TEXT)),
    "minProperties": 1,
}

EXTEND_COMPLETION: Final = fields({"error": {"type": ["string", "null", "boolean"]}})

RETYPE: Final = fields(
    {
        "new_type": {**TEXT, "minLength": 1},
        "migration_policy": {"enum": ["on-demand", "never", None]},
    },
    "new_type",
)

SET_BOOTABLE: Final = fields({"bootable": BOOLEAN}, "bootable")
READONLY: Final = fields({"readonly": BOOLEAN}, "readonly")

_PROPERTY: Final[Schema] = {"type": "string", "maxLength": 65535}
SET_IMAGE_METADATA: Final = fields(
    {
        "metadata": {
            **METADATA,
            "patternProperties": dict.fromkeys(METADATA["patternProperties"], _PROPERTY),
        }
    },
    "metadata",
)
UNSET_IMAGE_METADATA: Final = fields({"key": {**TEXT, "minLength": 1}}, "key")

# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of request bodies of volumes and their actions, by microversion."""

from types import MappingProxyType
from typing import Final

from attachd.api import microversions as mv
from attachd.api.validation import (
    BOOLEAN,
    METADATA,
    OPTIONAL_LINE,
    OPTIONAL_TEXT,
    REFERENCE,
    SIZE,
    TEXT,
    Schema,
    fields,
    wrapped,
)

REFUSED: Final = MappingProxyType(
    {
        "source_replica": "replicas",
        "backup_id": "backups",
        "consistencygroup_id": "consistency groups",
        "group_id": "groups",
    }
)
"""Fields that clients send as null.  Another value is refused: this service has no such thing."""

FOUND_NOWHERE: Final = frozenset({"backup_id", "group_id", "consistencygroup_id"})
"""Fields of REFUSED whose ids are looked up, and never found."""

_TEXTS: Final[dict[str, Schema]] = {
    **dict.fromkeys(("name", "display_name"), OPTIONAL_LINE),
    **dict.fromkeys(("description", "display_description"), OPTIONAL_TEXT),
}
_OPTIONAL_ID: Final[Schema] = {"type": ["string", "null"], "format": "uuid"}
_NEW: Final = fields(
    {
        **_TEXTS,
        **dict.fromkeys(REFUSED, OPTIONAL_TEXT),
        "size": {**SIZE, "type": ["integer", "string", "null"]},
        **dict.fromkeys(("source_volid", "snapshot_id"), _OPTIONAL_ID),
        **dict.fromkeys(("imageRef", "image_id"), OPTIONAL_TEXT),
        "volume_type": OPTIONAL_TEXT,
        "availability_zone": {**OPTIONAL_TEXT, "minLength": 1},
        "metadata": {**METADATA, "type": ["object", "null"]},
        "multiattach": {"anyOf": [{"type": "null"}, BOOLEAN]},
    }
)
_HINTS: Final[dict[str, Schema]] = {"OS-SCH-HNT:scheduler_hints": {"type": ["object", "null"]}}

CREATE: Final = [
    (mv.BASE, wrapped("volume", {**_NEW, "additionalProperties": True}, **_HINTS)),
    (mv.SUPPORT_VOLUME_SCHEMA_CHANGES, wrapped("volume", _NEW, **_HINTS)),
]

_CHANGES: Final = fields({**_TEXTS, "metadata": METADATA})

UPDATE: Final = [
    (mv.BASE, wrapped("volume", _CHANGES)),
    # From here on, at least one field is required.
    (mv.SUPPORT_VOLUME_SCHEMA_CHANGES, wrapped("volume", {**_CHANGES, "minProperties": 1})),
]

_EXISTING: Final = {
    "name": OPTIONAL_LINE,
    **dict.fromkeys(("description", "host", "volume_type"), OPTIONAL_TEXT),
    "availability_zone": OPTIONAL_TEXT,
    "bootable": {"anyOf": [{"type": "null"}, BOOLEAN]},
    "metadata": {**METADATA, "type": ["object", "null"]},
    "ref": REFERENCE,
}
MANAGE: Final = [
    (mv.BASE, wrapped("volume", fields(_EXISTING, "ref"))),
    (
        mv.VOLUME_MIGRATE_CLUSTER,
        wrapped("volume", fields({**_EXISTING, "cluster": OPTIONAL_TEXT}, "ref")),
    ),
]

REVERT: Final = fields({"snapshot_id": _OPTIONAL_ID})

PAIRS: Final = wrapped("metadata", METADATA)
PAIR: Final = wrapped("meta", {**METADATA, "minProperties": 1, "maxProperties": 1})


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

_UPLOAD: Final = {
    "image_name": {**TEXT, "minLength": 1, "maxLength": 255},
    "force": BOOLEAN,
    "disk_format": {"enum": ["raw", "vmdk", "vdi", "qcow2", "vhd", "vhdx", "ploop"]},
    "container_format": {**OPTIONAL_TEXT, "maxLength": 255},
}
UPLOAD_IMAGE: Final = [
    (mv.BASE, fields(_UPLOAD, "image_name")),
    (
        mv.UPLOAD_IMAGE_PARAMS,
        fields(
            {
                **_UPLOAD,
                "visibility": {"enum": ["community", "public", "private", "shared"]},
                "protected": BOOLEAN,
            },
            "image_name",
        ),
    ),
]
REIMAGE: Final = fields(
    {"image_id": {"type": "string", "format": "uuid"}, "reimage_reserved": BOOLEAN}, "image_id"
)

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

# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of the bodies of requests about sets of attachments."""

from typing import Final

from attachd.api.attachments.schema import HOST
from attachd.api.validation import Schema, fields

MAX_SIZE: Final = 64
"""How many attachments one request may create or delete."""

_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_VOLUME: Final = fields(
    {"volume_uuid": _UUID, "mode": {"type": "string", "enum": ["rw", "ro"]}}, "volume_uuid"
)
_SIZE: Final = {"minItems": 1, "maxItems": MAX_SIZE}

ATTACH: Final = fields(
    {
        "host": HOST,
        "volumes": {"type": "array", "items": _VOLUME, **_SIZE},
        "atomic": {"type": "boolean"},
    },
    "host",
    "volumes",
    "atomic",
)
DETACH: Final = fields({"attachments": {"type": "array", "items": _UUID, **_SIZE}}, "attachments")

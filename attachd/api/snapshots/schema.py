# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of request bodies of snapshots and their actions."""

from typing import Final

from attachd.api.validation import (
    BOOLEAN,
    METADATA,
    OPTIONAL_LINE,
    OPTIONAL_TEXT,
    TEXT,
    Schema,
    fields,
    wrapped,
)

_NAMES: Final = dict.fromkeys(("name", "display_name"), OPTIONAL_LINE)

CREATE: Final = wrapped(
    "snapshot",
    fields(
        {
            **_NAMES,
            **dict.fromkeys(("description", "display_description"), OPTIONAL_TEXT),
            "volume_id": {"type": ["string", "null"], "format": "uuid"},
            "force": {"anyOf": [{"type": "null"}, BOOLEAN]},
            "metadata": {**METADATA, "type": ["object", "null"]},
        },
        "volume_id",
    ),
)

_TEXTS: Final = {
    **_NAMES,
    **dict.fromkeys(("description", "display_description"), OPTIONAL_TEXT),
}
UPDATE: Final = wrapped("snapshot", {**fields(_TEXTS), "minProperties": 1})

PAIRS: Final = wrapped("metadata", METADATA)
PAIR: Final = wrapped("meta", {**METADATA, "minProperties": 1, "maxProperties": 1})

RESET: Final[Schema] = fields({"status": {**TEXT, "minLength": 1}}, "status")

PROGRESS: Final[Schema] = {
    "type": ["string", "null"],
    "pattern": r"\A(100|[0-9]{1,2})?%?\Z",
    "description": "per cent, such as 80%",
}
UPDATE_STATUS: Final = fields({"status": {**TEXT, "minLength": 1}, "progress": PROGRESS}, "status")

# Its content is checked after policy, as clients expect that are refused by it.
_REFERENCE: Final[Schema] = {"type": ["object", "string"], "maxLength": 255, "maxProperties": 16}
MANAGE: Final = wrapped(
    "snapshot",
    fields(
        {
            "name": OPTIONAL_LINE,
            "description": OPTIONAL_TEXT,
            "metadata": {**METADATA, "type": ["object", "null"]},
            "volume_id": {"type": "string", "format": "uuid"},
            "ref": _REFERENCE,
        },
        "ref",
        "volume_id",
    ),
)

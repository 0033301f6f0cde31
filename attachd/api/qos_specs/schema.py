# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of request bodies of QoS specs.

The keys are those of front ends, such as total_iops_sec, and any others.  Checked are the values
of those that attachd itself computes with.
"""

from typing import Final

from attachd.api.validation import NAME, OPTIONAL_TEXT, TEXT, Schema, fields, wrapped

CONSUMERS: Final = ("front-end", "back-end", "both")

_CONSUMER: Final[Schema] = {
    "enum": list(CONSUMERS),
    "description": f"one of {', '.join(CONSUMERS)}",
}
_KEY: Final = r"\A[a-zA-Z0-9_:. /-]{1,255}\Z"
_COMPUTED: Final = r"\A(read|write|total)_(iops|bytes)_sec_(per_gb|per_gb_min|max)\Z"
_NUMBER: Final[Schema] = {
    "type": "string",
    "pattern": r"\A[0-9]{1,18}\Z",
    "description": "a whole number, as a string of digits",
}
_SPECS: Final[Schema] = {
    "type": "object",
    "maxProperties": 256,
    "patternProperties": {_COMPUTED: _NUMBER},
    "additionalProperties": False,
}

CREATE: Final = wrapped(
    "qos_specs",
    {
        **_SPECS,
        "properties": {"name": NAME, "consumer": _CONSUMER},
        "patternProperties": {_COMPUTED: _NUMBER, _KEY: OPTIONAL_TEXT},
        "required": ["name"],
    },
)
UPDATE: Final = wrapped(
    "qos_specs",
    {
        **_SPECS,
        "properties": {"consumer": _CONSUMER},
        # A name cannot be changed, and is not a key.
        "patternProperties": {_COMPUTED: _NUMBER, rf"(?!\A(name|id)\Z){_KEY}": OPTIONAL_TEXT},
    },
)
DELETE_KEYS: Final = fields(
    {
        "keys": {
            "type": "array",
            "maxItems": 256,
            "uniqueItems": True,
            "items": {**TEXT, "minLength": 1},
        }
    },
    "keys",
)

# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of request bodies of quotas."""

from typing import Final

from attachd.api.validation import BOOLEAN, Schema, wrapped

_LIMIT: Final[Schema] = {
    "type": ["integer", "string"],
    "pattern": r"\A(-1|0*1?[0-9]{1,9}|2147483647)\Z",
    "minimum": -1,
    "maximum": 2**31 - 1,
    "description": "a whole number, or -1 for no limit",
}
"""Clients also send a string of digits."""

# Other keys depend on the volume types: handlers check them.
_SET: Final[Schema] = {"type": "object", "additionalProperties": _LIMIT}

UPDATE: Final = wrapped(
    "quota_set",
    {
        **_SET,
        # Clients repeat the project here; the one of the URL applies.
        "properties": {"tenant_id": {}, "id": {}, "force": BOOLEAN},
        "minProperties": 1,
    },
)
NOT_LIMITS: Final = frozenset({"tenant_id", "id", "force"})

UPDATE_CLASS: Final = wrapped("quota_class_set", _SET)

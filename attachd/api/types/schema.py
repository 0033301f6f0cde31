# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of request bodies of volume types."""

from typing import Final

from attachd import lost_agents, multiattach
from attachd.api.validation import BOOLEAN, NAME, OPTIONAL_TEXT, Schema, fields, wrapped

_SPECS: Final[Schema] = {
    "type": "object",
    "maxProperties": 256,
    "patternProperties": {r"\A[a-zA-Z0-9_:.-]{1,255}\Z": OPTIONAL_TEXT},
    "additionalProperties": False,
}

CREATE: Final = wrapped(
    "volume_type",
    fields(
        {
            "name": NAME,
            "description": OPTIONAL_TEXT,
            "extra_specs": {**_SPECS, "type": ["object", "null"]},
            "os-volume-type-access:is_public": BOOLEAN,
        },
        "name",
    ),
)
UPDATE: Final = wrapped(
    "volume_type",
    fields(
        {
            "name": {**NAME, "type": ["string", "null"]},
            "description": OPTIONAL_TEXT,
            "is_public": BOOLEAN,
            # openstacksdk reads and writes only this one.
            "os-volume-type-access:is_public": BOOLEAN,
        }
    ),
)
SPECS: Final = wrapped("extra_specs", _SPECS)
SPEC: Final[Schema] = {**_SPECS, "minProperties": 1, "maxProperties": 1}


def check_specs(specs: multiattach.Specs) -> None:
    """Check extra specs; see multiattach.check() and lost_agents.check()."""
    multiattach.check(specs)
    lost_agents.check(specs)


PROJECT: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 64,
    "pattern": r"\A\S(.*\S)?\Z",
    "description": "the id of a project",
}
ACCESS: Final = fields({"project": PROJECT}, "project")

ENCRYPTION: Final = wrapped("encryption", {"type": "object"})
"""The content is not checked, because encryption is refused."""

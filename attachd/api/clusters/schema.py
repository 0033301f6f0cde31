# SPDX-License-Identifier: Apache-2.0
"""What bodies of requests on clusters and left-over work look like; used by the handlers."""

from typing import Final

from attachd.api.fields import BOOLEAN, NAME, OPTIONAL_TEXT, Schema, fields
from attachd.api.services import binaries

ENABLE: Final[Schema] = fields({"name": NAME, "binary": OPTIONAL_TEXT}, "name")
DISABLE: Final[Schema] = fields(
    {"name": NAME, "binary": OPTIONAL_TEXT, "disabled_reason": OPTIONAL_TEXT}, "name"
)

_UUID: Final[Schema] = {"type": ["string", "null"], "format": "uuid"}
_NUMBER: Final[Schema] = {
    "type": ["integer", "string", "null"],
    "pattern": r"\A[0-9]{1,10}\Z",
    "minimum": 0,
    "description": "the number of a service",
}

CLEANUP: Final[Schema] = fields(
    {
        "cluster_name": NAME,
        "service_id": _NUMBER,
        "host": NAME,
        "binary": {"enum": list(binaries.ALL)},
        "is_up": BOOLEAN,
        "disabled": BOOLEAN,
        "resource_id": _UUID,
        "resource_type": {"enum": ["Volume", "volume", "Snapshot", "snapshot", None]},
    }
)

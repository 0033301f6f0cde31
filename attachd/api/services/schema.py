# SPDX-License-Identifier: Apache-2.0
"""Schemas of request bodies of services."""

from typing import Final

from attachd.api.fields import NAME, OPTIONAL_TEXT, Schema, fields
from attachd.api.services import binaries
from attachd.telemetry import log_levels

_SERVICE: Final = {
    "host": NAME,
    "binary": NAME,
    # the old name of "binary"
    "service": NAME,
    "cluster": OPTIONAL_TEXT,
}
_NAMED: Final[Schema] = {
    "anyOf": [{"required": ["binary"]}, {"required": ["service"]}],
    "description": "a service, which is named by its host and its binary",
}

SWITCH: Final[Schema] = {**fields(_SERVICE, "host"), **_NAMED}
SWITCH_WITH_REASON: Final[Schema] = {
    **fields({**_SERVICE, "disabled_reason": NAME}, "host"),
    **_NAMED,
}

BACKEND: Final[Schema] = fields({"host": NAME, "cluster": OPTIONAL_TEXT})
FAILOVER: Final[Schema] = fields(
    {"host": NAME, "cluster": OPTIONAL_TEXT, "backend_id": OPTIONAL_TEXT}
)

_LOGGERS: Final = {
    "binary": {"enum": ["*", "", *binaries.ALL]},
    "server": OPTIONAL_TEXT,
    "prefix": OPTIONAL_TEXT,
}
_LEVEL: Final[Schema] = {
    "type": "string",
    "pattern": rf"\A(?i:{'|'.join(log_levels.LEVELS)})\Z",
    "description": f"a valid log level: {', '.join(log_levels.LEVELS)}",
}

GET_LOG: Final[Schema] = fields(_LOGGERS)
SET_LOG: Final[Schema] = fields({**_LOGGERS, "level": _LEVEL}, "level")

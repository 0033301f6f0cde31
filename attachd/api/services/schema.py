# SPDX-License-Identifier: Apache-2.0
"""What bodies of requests on services look like; used by handlers.py."""

from typing import Final

from attachd.api.fields import NAME, OPTIONAL_TEXT, Schema, fields

_SERVICE: Final = {
    "host": NAME,
    "binary": NAME,
    # what "binary" was called long ago
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

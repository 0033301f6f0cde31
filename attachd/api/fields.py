# SPDX-License-Identifier: Apache-2.0
r"""JSON schemas of single fields, and functions that combine them into schemas of bodies.

Text that a database cannot store is refused by serialization.py before.  A pattern ends in
``\Z``, because ``$`` also matches before a line break at the end.
"""

import ast
from collections.abc import Mapping
from typing import Any, Final
import uuid

from oslo_utils import strutils

from attachd import exception
from attachd.api import validation

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string", "maxLength": 255}
OPTIONAL_TEXT: Final[Schema] = {**TEXT, "type": ["string", "null"]}
NAME: Final[Schema] = {
    **TEXT,
    "minLength": 1,
    "pattern": r"\S",
    "description": "a text that can be seen",
}

BOOLEAN: Final[Schema] = {
    "enum": [
        *(True, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes", "y", "t"),
        *(False, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no", "n", "f"),
    ]
}

SIZE: Final[Schema] = {
    "type": ["integer", "string"],
    "pattern": r"\A0*[1-9][0-9]{0,8}\Z",
    "minimum": 1,
    "maximum": 2**31 - 1,
    "description": "a whole number of GiB, 1 or more",
}
"""Clients also send a string of digits."""

METADATA: Final[Schema] = {
    "type": "object",
    "maxProperties": 256,
    "patternProperties": {r"\A[a-zA-Z0-9_:. /-]{1,255}\Z": TEXT},
    "additionalProperties": False,
}


_MAX_PAIRS: Final = 32
"""Upper limit for one filter: more keys cost the database seconds to plan the query."""


def wrapped(key: str, inner: Schema, **beside: Schema) -> Schema:
    """Return the schema of a body whose content is under one key.

    :param beside: further keys, which are optional
    """
    return fields({key: inner, **beside}, key)


def fields(properties: Mapping[str, Schema], *required: str) -> Schema:
    """Return the schema of an object that has these fields and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def query_text(text: str) -> Schema:
    """Return the schema of a query parameter that is text."""
    return {"type": "string", "description": text}


def query_flag(text: str) -> Schema:
    """Return the schema of a query parameter that is true or false; see :func:`parse_bool`."""
    words = [each for each in BOOLEAN["enum"] if isinstance(each, str)]
    return {"enum": words, "description": text}


def parse_bool(name: str, value: object) -> bool:
    """Parse a boolean as clients write it in bodies and URLs.

    :raises InvalidInput: it is neither true nor false
    """
    try:
        return strutils.bool_from_string(value, strict=True)
    except ValueError:
        raise exception.InvalidInput(
            field=name, value=validation.abbreviate(value), reason="It must be true or false."
        ) from None


def canonical(identity: str) -> str:
    """Return a UUID as the database stores it, lower case with hyphens; other text unchanged."""
    try:
        return str(uuid.UUID(identity))
    except ValueError:
        return identity


def parse_pairs(name: str, text: str) -> dict[str, str]:
    """Parse ``{'key': 'value'}`` in a URL: clients send Python's repr() of a dictionary.

    :raises InvalidInput: the text has another form
    """
    parsed: Any
    try:
        parsed = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        parsed = None
    # A repr() can hold, escaped, characters that a URL cannot.
    if not isinstance(parsed, dict) or not all(
        isinstance(each, str) and each.isprintable() for pair in parsed.items() for each in pair
    ):
        parsed = None
    if parsed is None or len(parsed) > _MAX_PAIRS:
        raise exception.InvalidInput(
            field=name,
            value=validation.abbreviate(text),
            reason=f"It must look like {{'key': 'value'}}, with {_MAX_PAIRS} keys at most.",
        )
    return dict(parsed)

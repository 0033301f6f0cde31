# SPDX-License-Identifier: Apache-2.0
r"""JSON schemas: of single fields, combined to those of bodies, and compiled for endpoint.py.

Each noun's schema.py combines the schemas of fields; errors name the field that is wrong.  Text
that a database cannot store is refused by serialization.py before.  A pattern ends in ``\Z``,
because ``$`` also matches before a line break at the end.
"""

import ast
from collections.abc import Mapping, Sequence
import re
from typing import Any, Final
import uuid

import jsonschema
from jsonschema import exceptions
from oslo_utils import strutils

from attachd import exception

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
    words = [word for word in BOOLEAN["enum"] if isinstance(word, str)]
    return {"enum": words, "description": text}


def parse_bool(name: str, value: object) -> bool:
    """Parse a boolean as clients write it in bodies and URLs.

    :raises InvalidInput: it is neither true nor false
    """
    try:
        return strutils.bool_from_string(value, strict=True)
    except ValueError:
        raise exception.InvalidInput(
            field=name, value=abbreviate(value), reason="It must be true or false."
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
        isinstance(text, str) and text.isprintable() for pair in parsed.items() for text in pair
    ):
        parsed = None
    if parsed is None or len(parsed) > _MAX_PAIRS:
        raise exception.InvalidInput(
            field=name,
            value=abbreviate(text),
            reason=f"It must look like {{'key': 'value'}}, with {_MAX_PAIRS} keys at most.",
        )
    return dict(parsed)


MAX_SHOWN = 100
"""Characters of a wrong value that its message shows."""

_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}", re.ASCII)
_formats = jsonschema.FormatChecker(formats=())


@_formats.checks("uuid")
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or _UUID.fullmatch(value) is not None


class Validator:
    """One compiled schema; ``schema`` is what it was compiled from."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        kind = jsonschema.Draft202012Validator
        kind.check_schema(schema)
        self._errors = kind(schema, format_checker=_formats).iter_errors

    def check(self, value: Any, root: str = "") -> None:
        """Check a value.

        :param root: the name of the value itself in messages, if any
        :raises InvalidInput: naming the first wrong field
        """
        for error in self._errors(value):
            raise _invalid(error, root)


def _invalid(error: exceptions.ValidationError, root: str) -> exception.BadRequest:
    parts = [root, *error.absolute_path] if root else error.absolute_path
    path = ".".join(str(part)[:MAX_SHOWN] for part in parts)
    reason = _REASONS.get(str(error.validator), _plain)(error)
    if not path:
        return exception.BadRequest(reason=reason)
    return exception.InvalidInput(field=path, value=abbreviate(error.instance), reason=reason)


def abbreviate(value: Any) -> str:
    """Return a value for messages: unprintable characters escaped, and truncated."""
    if isinstance(value, str):
        value = value[: MAX_SHOWN + 1]
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _plain(error: exceptions.ValidationError) -> str:
    return str(error.message).replace(repr(error.instance), abbreviate(error.instance))[
        : 3 * MAX_SHOWN
    ]


def _unexpected(error: exceptions.ValidationError) -> str:
    known = error.schema.get("properties", {})
    patterns = error.schema.get("patternProperties", {})
    extra = [
        abbreviate(key)
        for key in error.instance
        if key not in known and not any(re.search(pattern, key) for pattern in patterns)
    ]
    listed = ", ".join(extra[:10])
    verb = "was" if len(extra) == 1 else "were"
    return f"Additional properties are not allowed ({listed} {verb} unexpected)"


def _wrong_type(error: exceptions.ValidationError) -> str:
    required = error.validator_value
    names = [required] if isinstance(required, str) else required
    listed = ", ".join(repr(name) for name in names)
    return f"{abbreviate(error.instance)} is not of type {listed}"


def _too_long(error: exceptions.ValidationError) -> str:
    return f"{abbreviate(error.instance)} is longer than {error.validator_value} characters"


def _described(error: exceptions.ValidationError) -> str:
    """Use the description of the schema: a pattern would be unreadable."""
    expected = error.schema.get("description")
    return f"{abbreviate(error.instance)} is not {expected}" if expected else _plain(error)


_REASONS = {
    "additionalProperties": _unexpected,
    "anyOf": _described,
    "pattern": _described,
    "maxLength": _too_long,
    "type": _wrong_type,
}


class VersionedSchema:
    """Schemas by the microversion that introduced each of them."""

    def __init__(self, steps: Schema | Sequence[tuple[Any, Schema]], first: Any) -> None:
        """Compile them; ``first`` is the version of a single schema."""
        pairs = [(first, steps)] if isinstance(steps, Mapping) else steps
        self._steps = sorted(
            ((since, Validator(schema)) for since, schema in pairs),
            key=lambda step: step[0],
            reverse=True,
        )

    @property
    def schemas(self) -> list[Schema]:
        """All schemas, the newest first; for tests that generate bodies."""
        return [validator.schema for _since, validator in self._steps]

    def get(self, version: Any) -> Validator | None:
        """Return the schema of a version; None: it has none yet."""
        for since, validator in self._steps:
            if version >= since:
                return validator
        return None

    def check(self, value: Any, version: Any, root: str = "") -> None:
        """Check a value against the schema of a version; see Validator.check()."""
        if (validator := self.get(version)) is not None:
            validator.check(value, root)

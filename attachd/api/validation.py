# SPDX-License-Identifier: Apache-2.0
r"""JSON schemas: of single fields, combined to those of bodies, and compiled for endpoint.py.

Each noun's schema.py combines the schemas of fields; errors name the field that is wrong.  Text
that a database cannot store is refused by serialization.py before.  A pattern ends in ``\Z``,
because ``$`` also matches before a line break at the end.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
import itertools
import re
from typing import Any, Final
import uuid

import jsonschema
from jsonschema import exceptions, validators
from oslo_utils import strutils

from attachd import exception

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string", "maxLength": 255}
OPTIONAL_TEXT: Final[Schema] = {**TEXT, "type": ["string", "null"]}
_NO_CONTROL: Final = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z"
"""The rest of a text that has no control character and no line break."""

NAME: Final[Schema] = {
    **TEXT,
    "minLength": 1,
    "pattern": rf"\A(?!\s*\Z){_NO_CONTROL}",
    "description": "a text that can be seen, without control characters",
}
OPTIONAL_LINE: Final[Schema] = {
    **OPTIONAL_TEXT,
    "pattern": rf"\A{_NO_CONTROL}",
    "description": "a text without control characters",
}

REASON: Final[Schema] = {**TEXT, "pattern": r"\S", "description": "a reason that can be read"}
"""Why an administrator overrides a check, or fences or drains a host."""

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


REFERENCE: Final[Schema] = {
    "type": ["object", "string"],
    "maxLength": 255,
    "maxProperties": 16,
    "patternProperties": {r"\A[a-zA-Z0-9_-]{1,64}\Z": TEXT},
    "additionalProperties": False,
    "description": "the name of an object at its backend",
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
_MAX_LISTED: Final = 10
"""Unexpected keys that a message shows."""

_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}", re.ASCII)
_formats = jsonschema.FormatChecker(formats=())


@_formats.checks("uuid")
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or _UUID.fullmatch(value) is not None


def _check_type(
    validator: Any, types: Any, instance: Any, _schema: Schema
) -> Iterator[exceptions.ValidationError]:
    names = [types] if isinstance(types, str) else types
    if not any(validator.is_type(instance, name) for name in names):
        yield exceptions.ValidationError("")


def _check_enum(
    _validator: Any, values: Any, instance: Any, schema: Schema
) -> Iterator[exceptions.ValidationError]:
    # An array or object differs from all values without a comparison, which can take long.
    is_scalar = not isinstance(instance, list | dict)
    for _error in _STANDARD["enum"](_validator, values, instance if is_scalar else (), schema):
        yield exceptions.ValidationError("")


def _check_pattern(
    _validator: Any, pattern: str, instance: Any, _schema: Schema
) -> Iterator[exceptions.ValidationError]:
    if isinstance(instance, str) and not re.search(pattern, instance):
        yield exceptions.ValidationError("")


def _check_max_length(
    _validator: Any, limit: int, instance: Any, _schema: Schema
) -> Iterator[exceptions.ValidationError]:
    if isinstance(instance, str) and len(instance) > limit:
        yield exceptions.ValidationError("")


def _check_max_size(
    _validator: Any, limit: int, instance: Any, _schema: Schema
) -> Iterator[exceptions.ValidationError]:
    if isinstance(instance, list | dict) and len(instance) > limit:
        yield exceptions.ValidationError("")


def _check_format(
    validator: Any, name: str, instance: Any, _schema: Schema
) -> Iterator[exceptions.ValidationError]:
    if not validator.format_checker.conforms(instance, name):
        yield exceptions.ValidationError("")


def _check_additional(
    validator: Any, allowed: Any, instance: Any, schema: Schema
) -> Iterator[exceptions.ValidationError]:
    if not isinstance(instance, dict):
        return
    for key in _unexpected_keys(instance, schema):
        if allowed is False:
            yield exceptions.ValidationError("")
            return
        yield from validator.descend(instance[key], allowed, path=key)


def _unexpected_keys(instance: Mapping[str, Any], schema: Schema) -> Iterator[str]:
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for key in instance:
        if key not in known and not any(re.search(pattern, key) for pattern in patterns):
            yield key


_STANDARD: Final[Mapping[str, Any]] = jsonschema.Draft202012Validator.VALIDATORS
_Draft: Final = validators.extend(
    jsonschema.Draft202012Validator,
    {
        "type": _check_type,
        "enum": _check_enum,
        "pattern": _check_pattern,
        "maxLength": _check_max_length,
        "maxItems": _check_max_size,
        "maxProperties": _check_max_size,
        "format": _check_format,
        "additionalProperties": _check_additional,
    },
)
"""The standard's keywords.  Those that may refuse a large value do not format it: jsonschema
formats the whole value for a message, of which _REASONS shows the beginning."""


class Validator:
    """One compiled schema; ``schema`` is what it was compiled from."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        _Draft.check_schema(schema)
        self._errors = _Draft(schema, format_checker=_formats).iter_errors

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
    """Return a value for messages: unprintable characters escaped, and truncated.

    The rest of the value is not formatted.
    """
    text = ""
    for token in _tokens(value):
        text += token
        if len(text) > MAX_SHOWN:
            return f"{text[:MAX_SHOWN]}..."
    return text


def _tokens(value: Any) -> Iterator[str]:
    """Yield the repr() of a JSON value in pieces, each of limited length."""
    if isinstance(value, str):
        yield repr(value[: MAX_SHOWN + 1])
    elif isinstance(value, list):
        yield "["
        for i, item in enumerate(value):
            yield ", " if i else ""
            yield from _tokens(item)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        for i, (key, item) in enumerate(value.items()):
            yield ", " if i else ""
            yield from _tokens(key)
            yield ": "
            yield from _tokens(item)
        yield "}"
    else:
        yield repr(value)


def _plain(error: exceptions.ValidationError) -> str:
    return str(error.message).replace(repr(error.instance), abbreviate(error.instance))[
        : 3 * MAX_SHOWN
    ]


def _unexpected(error: exceptions.ValidationError) -> str:
    instance: Any = error.instance
    schema: Any = error.schema
    extra = itertools.islice(_unexpected_keys(instance, schema), _MAX_LISTED)
    shown = [abbreviate(key) for key in extra]
    verb = "was" if len(shown) == 1 else "were"
    return f"Additional properties are not allowed ({', '.join(shown)} {verb} unexpected)"


def _wrong_type(error: exceptions.ValidationError) -> str:
    required: Any = error.validator_value
    names = [required] if isinstance(required, str) else required
    listed = ", ".join(repr(name) for name in names)
    return f"{abbreviate(error.instance)} is not of type {listed}"


def _too_long(error: exceptions.ValidationError) -> str:
    return f"{abbreviate(error.instance)} is longer than {error.validator_value} characters"


def _too_many(error: exceptions.ValidationError) -> str:
    return f"{abbreviate(error.instance)} has more than {error.validator_value} items"


def _not_listed(error: exceptions.ValidationError) -> str:
    return f"{abbreviate(error.instance)} is not one of {error.validator_value!r}"[: 3 * MAX_SHOWN]


def _wrong_format(error: exceptions.ValidationError) -> str:
    return f"{abbreviate(error.instance)} is not a {error.validator_value!r}"


def _described(error: exceptions.ValidationError) -> str:
    """Use the description of the schema: a pattern would be unreadable."""
    schema: Any = error.schema
    expected = schema.get("description")
    if not expected and error.validator == "pattern":
        return f"{abbreviate(error.instance)} does not match {error.validator_value!r}"
    return f"{abbreviate(error.instance)} is not {expected}" if expected else _plain(error)


_REASONS = {
    "additionalProperties": _unexpected,
    "anyOf": _described,
    "enum": _not_listed,
    "format": _wrong_format,
    "pattern": _described,
    "maxItems": _too_many,
    "maxLength": _too_long,
    "maxProperties": _too_many,
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

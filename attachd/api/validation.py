# SPDX-License-Identifier: Apache-2.0
"""Compiled JSON schemas, whose errors name the field; used by endpoint.

The schemas are in each noun's schema.py, and consist of those in fields.py.
"""

from collections.abc import Mapping, Sequence
import re
from typing import Any

import jsonschema
from jsonschema import exceptions

from attachd import exception

Schema = Mapping[str, Any]

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
    wanted = error.validator_value
    names = [wanted] if isinstance(wanted, str) else wanted
    listed = ", ".join(repr(name) for name in names)
    return f"{abbreviate(error.instance)} is not of type {listed}"


def _too_long(error: exceptions.ValidationError) -> str:
    return f"{abbreviate(error.instance)} is longer than {error.validator_value} characters"


def _described(error: exceptions.ValidationError) -> str:
    """Use the description of the schema: a pattern would be unreadable."""
    wanted = error.schema.get("description")
    return f"{abbreviate(error.instance)} is not {wanted}" if wanted else _plain(error)


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

    def at(self, version: Any) -> Validator | None:
        """Return the schema of a version; None: it has none yet."""
        for since, validator in self._steps:
            if version >= since:
                return validator
        return None

    def check(self, value: Any, version: Any, root: str = "") -> None:
        """Check a value against the schema of a version; see Validator.check()."""
        if (validator := self.at(version)) is not None:
            validator.check(value, root)

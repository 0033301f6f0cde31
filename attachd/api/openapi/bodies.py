# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests as OpenAPI describes them: the schemas that they are checked by.

Patterns are for Python in ours, and for ECMA 262 in JSON Schema's.
"""

from collections.abc import Mapping, Sequence
import re
from typing import Any

from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint
from attachd.api.openapi import descriptions

Schema = dict[str, Any]

_ANY_CASE = re.compile(r"\(\?i:((?:[^()\\]|\\.)*)\)")


def body(found: Sequence[Endpoint], version: mv.Version) -> Schema | None:
    """Describe the body of what answers to one method of one URL.

    :param found: one endpoint, or all actions
    :returns: None: none is read
    """
    if found[0].action is not None:
        schema: Schema = {"oneOf": [_action(each, version) for each in found]}
    elif (plain := _checked(found[0], version)) is not None:
        schema = plain
    else:
        return None
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _action(each: Endpoint, version: mv.Version) -> Schema:
    assert each.action is not None
    return {
        "title": each.action,
        "description": descriptions.of(each).summary,
        "type": "object",
        "properties": {each.action: _checked(each, version)},
        "required": [each.action],
        "additionalProperties": False,
    }


def _checked(each: Endpoint, version: mv.Version) -> Schema | None:
    validator = None if each.body is None else each.body.at(version)
    if validator is None:
        return None
    schema: Schema = plain(validator.schema)
    return schema


def plain(value: Any) -> Any:
    """Return a schema in plain dictionaries and lists, with patterns as JSON Schema has them."""
    if isinstance(value, Mapping):
        found = {key: plain(each) for key, each in value.items()}
        if isinstance(found.get("pattern"), str):
            found["pattern"] = pattern(found["pattern"])
        if isinstance(found.get("patternProperties"), dict):
            found["patternProperties"] = {
                pattern(key): each for key, each in found["patternProperties"].items()
            }
        return found
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def pattern(text: str) -> str:
    r"""Write a pattern as ECMA 262 has it: ``^`` for ``\A``, and no flags in it."""
    text = text.replace(r"\A", "^").replace(r"\Z", "$")
    return _ANY_CASE.sub(lambda found: f"(?:{_in_any_case(found[1])})", text)


def _in_any_case(text: str) -> str:
    return "".join(f"[{each.upper()}{each.lower()}]" if each.isalpha() else each for each in text)

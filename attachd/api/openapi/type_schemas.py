# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of responses, from the types that views and handlers declare.

A TypedDict becomes a component, whose fields are described by the ``:ivar`` lines of its
docstring.  A field that came with a microversion is ``Annotated[str, mv.USE_QUOTA]``.  A field of
attachd's own API, ``NotRequired[Annotated[str, mv.ATTACHD_1_0]]``, is there if the request asks
for this API.
"""

from collections.abc import Collection, Mapping, Sequence
import datetime
import inspect
import re
import sys
import types
import typing
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin

from attachd.api import microversions as mv

Schema = dict[str, Any]

_NAMES: Mapping[Any, str] = types.MappingProxyType(
    {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
)
_MOMENT: Schema = {
    "type": "string",
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}$",
}
_IVAR = re.compile(r"^:ivar (\S+): (.*?)(?=^:ivar |\Z)", re.MULTILINE | re.DOTALL)


class TypeSchemas:
    """Converter of types to schemas for one microversion.

    :ivar components: the schemas of TypedDicts, by name
    """

    def __init__(self, version: mv.Version) -> None:
        self._version = version
        self.components: dict[str, Schema] = {}

    def get(self, hint: Any) -> Schema:
        """Return the schema of a type, or of an object by the types of its keys.

        :raises TypeError: the type is not supported in responses
        """
        if isinstance(hint, Mapping):
            return self._object(hint, frozenset(hint), {})
        if hint in _NAMES or hint is None:
            return {"type": _NAMES[type(None) if hint is None else hint]}
        if hint is Any:
            return {}
        if hint is datetime.datetime:
            return dict(_MOMENT)
        if typing.is_typeddict(hint):
            return self._component(hint)
        return self._composed(hint)

    def _composed(self, hint: Any) -> Schema:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in {Union, types.UnionType}:
            return _either([self.get(argument) for argument in arguments])
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in {Annotated, NotRequired}:
            return self.get(arguments[0])
        if origin in {list, Sequence}:
            return {"type": "array", "items": self.get(arguments[0])}
        if origin in {dict, Mapping}:
            return {"type": "object", "additionalProperties": self.get(arguments[1]) or True}
        raise TypeError(f"{hint} is not supported in responses")

    def _component(self, hint: Any) -> Schema:
        noun = hint.__module__.split(".")[2]
        name = f"{noun}.{hint.__name__}"
        if name not in self.components:
            self.components[name] = {}  # for a type that refers to itself
            described = _described(hint)
            hints = typing.get_type_hints(hint, include_extras=True)
            self.components[name] = self._object(hints, hint.__required_keys__, described)
            if doc := inspect.getdoc(hint):
                self.components[name]["description"] = _sentence(_IVAR.sub("", doc))
        return {"$ref": f"#/components/schemas/{name}"}

    def _object(
        self, keys: Mapping[str, Any], required: Collection[str], described: Mapping[str, str]
    ) -> Schema:
        """Return the schema of an object with those of these keys that the version has."""
        properties: dict[str, Schema] = {}
        always = []
        for key, hint in keys.items():
            since = _since(hint)
            is_own = since is not None and since.major < mv.MINIMUM.major
            if since is not None and not is_own and since > self._version:
                continue
            properties[key] = self.get(hint)
            text = f"attachd {since}. {described.get(key, '')}" if is_own else described.get(key)
            if text and "$ref" not in properties[key]:
                properties[key]["description"] = text.strip()
            if key in required and get_origin(hint) is not NotRequired:
                always.append(key)
        shape: Schema = {"type": "object", "properties": properties}
        return {**shape, "required": always, "additionalProperties": False}


def _since(hint: Any) -> mv.Version | None:
    """Return the version that introduced a field; None: the oldest one."""
    if get_origin(hint) is NotRequired:
        return _since(get_args(hint)[0])
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((item for item in metadata if isinstance(item, mv.Version)), None)


def _either(schemas: list[Schema]) -> Schema:
    """Return the schema of a value that matches one of several schemas."""
    if all(schema.keys() == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _described(hint: Any) -> dict[str, str]:
    """Return the descriptions of the fields of a TypedDict from docstrings.

    Older releases of Python hide the bases of a TypedDict at run time: a TypedDict of the same
    module whose fields are a subset of its fields is taken for a base.
    """
    module = vars(sys.modules[hint.__module__]).values()
    others = [item for item in module if typing.is_typeddict(item) and item is not hint]
    fields = hint.__annotations__.keys()
    descriptions: dict[str, str] = {}
    bases = [other for other in others if other.__annotations__.keys() <= fields]
    for described in (*bases, hint):
        doc = inspect.cleandoc(described.__doc__ or "")
        descriptions |= {name: _sentence(text) for name, text in _IVAR.findall(doc)}
    return descriptions


def _sentence(text: str) -> str:
    """Join the lines of a text."""
    return " ".join(text.split())

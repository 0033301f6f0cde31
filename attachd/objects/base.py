# SPDX-License-Identifier: Apache-2.0
"""What the objects share: their base class, their registry, and fields for JSON."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from oslo_utils.versionutils import convert_version_to_tuple as number
from oslo_versionedobjects import base, fields

from attachd.context import RequestContext


class AttachdObject(base.VersionedObject):
    """An object with a version: fields and a few short methods.

    A new minor version only adds fields that older receivers can do without; any other change
    needs a new major version.

    :cvar ADDED: versions that introduced fields which version 1.0 did not have
    """

    OBJ_PROJECT_NAMESPACE = "attachd"
    OBJ_SERIAL_NAMESPACE = "attachd_object"
    ADDED: ClassVar[Mapping[str, str]] = MappingProxyType({})
    _ATTRIBUTES: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The attribute in which the property of each field keeps its value."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._ATTRIBUTES = {name: f"_obj_{name}" for name in cls.fields}

    @classmethod
    def from_row(cls, context: RequestContext | None, row: Mapping[str, Any]) -> Self:
        """Build the object from a row of the database; missing fields stay unset.

        The columns have the types of the fields, and nothing is converted: setters, which do
        convert, are a tenth of all calls of functions in a request.
        """
        obj = cls(context)
        vars(obj).update(
            {attribute: row[name] for name, attribute in cls._ATTRIBUTES.items() if name in row}
        )
        return obj

    def to_row(self) -> dict[str, Any]:
        """Return the values of the fields that are set, as :meth:`from_row` takes them."""
        values = vars(self)
        return {
            name: values[attribute]
            for name, attribute in self._ATTRIBUTES.items()
            if attribute in values
        }

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Remove the fields that an older version does not have."""
        super().obj_make_compatible(primitive, target_version)
        for name, since in self.ADDED.items():
            if number(target_version) < number(since):
                primitive.pop(name, None)


class Registry(base.VersionedObjectRegistry):
    """Registry of the object classes by name and version."""


class JsonType(fields.FieldType):  # type: ignore[type-arg]  # generic since 3.10
    """Any JSON value, unchanged."""

    @staticmethod
    def coerce(_obj: Any, _attr: str, value: Any) -> Any:
        """Accept the value; the serializer of the message checks it."""
        return value


class JsonField(fields.AutoTypedField):  # type: ignore[type-arg]
    """A field for JSON with keys that callers choose."""

    AUTO_TYPE = JsonType()


def scope(context: RequestContext) -> str | None:
    """Return the project whose rows the caller sees; None: all projects.

    A caller without a project who is no administrator sees no rows: no row has an empty project.
    """
    return None if context.is_admin else context.project_id or ""

# SPDX-License-Identifier: Apache-2.0
"""The base of the objects that cross RPC, and their serializer; used by rpcapi and the manager."""

from collections.abc import Mapping
from typing import Any, Self

from oslo_versionedobjects import base, fields

from attachd.context import RequestContext


class AttachdObject(base.VersionedObject):
    """An object with a version: fields, a few one-line verbs, and nothing else."""

    OBJ_PROJECT_NAMESPACE = "attachd"
    OBJ_SERIAL_NAMESPACE = "attachd_object"

    @classmethod
    def from_row(cls, context: RequestContext | None, row: Mapping[str, Any]) -> Self:
        """Build the object from a row of the database; fields that it lacks stay unset."""
        obj = cls(context)
        for name in cls.fields:
            if name in row:
                setattr(obj, name, row[name])
        obj.obj_reset_changes()
        return obj


class Registry(base.VersionedObjectRegistry):
    """Knows every object class by name and version."""


class Serializer(base.VersionedObjectSerializer):
    """Turns our objects, anywhere in the arguments of a call, into primitives and back."""

    OBJ_BASE_CLASS = AttachdObject


class JsonType(fields.FieldType[Any]):
    """Any JSON value, kept as it is."""

    @staticmethod
    def coerce(_obj: Any, _attr: str, value: Any) -> Any:
        """Accept what JSON can say; the serializer on the wire checks it."""
        return value


class JsonField(fields.AutoTypedField[Any]):
    """A field for JSON whose keys are the callers' affair."""

    AUTO_TYPE = JsonType()


def scope(context: RequestContext) -> str | None:
    """Return the project whose rows the caller sees, or None for those of all projects."""
    return None if context.is_admin else context.project_id

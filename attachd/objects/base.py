# SPDX-License-Identifier: Apache-2.0
"""Base class, serializer and versions of the objects that cross RPC."""

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

    @classmethod
    def from_row(cls, context: RequestContext | None, row: Mapping[str, Any]) -> Self:
        """Build the object from a row of the database; missing fields stay unset."""
        obj = cls(context, **{name: row[name] for name in cls.fields if name in row})
        obj.obj_reset_changes()
        return obj

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Remove the fields that an older version does not have."""
        super().obj_make_compatible(primitive, target_version)
        for name, since in self.ADDED.items():
            if number(target_version) < number(since):
                primitive.pop(name, None)


class Registry(base.VersionedObjectRegistry):
    """Registry of the object classes by name and version."""


class Serializer(base.VersionedObjectSerializer):
    """Serializes attachd's objects, anywhere in the arguments of a call.

    Of an object of a newer sender, the known fields are read.

    :param targets: versions to send, by the names of objects; others are sent as they are
    """

    OBJ_BASE_CLASS = AttachdObject

    def __init__(self, targets: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._targets = dict(targets or {})

    def serialize_entity(self, context: Any, entity: Any) -> Any:
        """Serialize an object in the version that the receiver knows."""
        if isinstance(entity, AttachdObject):
            known = self._targets.get(entity.obj_name(), entity.VERSION)
            return entity.obj_to_primitive(min(known, entity.VERSION, key=number))
        return super().serialize_entity(context, entity)

    def deserialize_entity(self, context: Any, entity: Any) -> Any:
        """Rebuild an object.

        :raises IncompatibleObjectVersion: its major version is another one
        """
        if isinstance(entity, dict) and _NAME in entity:
            entity = _as_known(entity)
        return super().deserialize_entity(context, entity)


_NAME, _VERSION, _DATA, _CHANGES = (
    f"{AttachdObject.OBJ_SERIAL_NAMESPACE}.{each}"
    for each in ("name", "version", "data", "changes")
)


def _as_known(primitive: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a newer object that only the sender knows."""
    kinds = Registry.obj_classes().get(primitive[_NAME])
    if not kinds:
        return primitive
    ours, theirs = number(kinds[0].VERSION), number(primitive[_VERSION])
    if ours[0] != theirs[0] or ours >= theirs:
        return primitive
    data = {name: value for name, value in primitive[_DATA].items() if name in kinds[0].fields}
    changes = [name for name in primitive.get(_CHANGES, ()) if name in data]
    return {**primitive, _VERSION: kinds[0].VERSION, _DATA: data, _CHANGES: changes}


class JsonType(fields.FieldType[Any]):
    """Any JSON value, unchanged."""

    @staticmethod
    def coerce(_obj: Any, _attr: str, value: Any) -> Any:
        """Accept the value; the serializer of the message checks it."""
        return value


class JsonField(fields.AutoTypedField[Any]):
    """A field for JSON with keys that callers choose."""

    AUTO_TYPE = JsonType()


def scope(context: RequestContext) -> str | None:
    """Return the project whose rows the caller sees; None: all projects.

    A caller without a project who is no administrator sees no rows: no row has an empty project.
    """
    return None if context.is_admin else context.project_id or ""


Manifest = tuple[tuple[str, str], ...]

_RAISED = {"1.0": {"Attachment": "1.0", "Volume": "1.0"}}
"""With which versions of the contract (manager_api) came which of the objects."""


def of_contract(version: str) -> Manifest:
    """Return the object versions that belong to a version of the contract."""
    known: dict[str, str] = {}
    for since, raised in _RAISED.items():
        if number(since) <= number(version):
            known |= raised
    return tuple(sorted(known.items()))


def newest() -> Manifest:
    """Return the object versions of this code."""
    classes = Registry.obj_classes()
    return tuple(sorted((name, found[0].VERSION) for name, found in classes.items()))


def to_text(manifest: Manifest) -> str:
    """Format a manifest as ``Attachment 1.2, Volume 1.2``."""
    return ", ".join(" ".join(pair) for pair in manifest)


def from_text(text: str) -> Manifest:
    """Parse the result of :func:`to_text`."""
    pairs = (each.partition(" ") for each in text.split(", "))
    return tuple((name, version) for name, _space, version in pairs)

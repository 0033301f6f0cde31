# SPDX-License-Identifier: Apache-2.0
"""Serialization of objects in messages, and the versions of objects that a receiver knows."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from oslo_utils.versionutils import convert_version_to_tuple as number
from oslo_versionedobjects import base

from attachd.objects.base import AttachdObject, Registry


class Serializer(base.VersionedObjectSerializer):
    """Serializes attachd's objects: an argument or a result, or the items of a list.

    A dictionary inside of another value has keys that a client chose, as a connector has.  It is
    never taken for an object.  Of an object of a newer sender, the known fields are read.

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
        """Rebuild an object, or each object of a list.

        :raises IncompatibleObjectVersion: its major version is another one
        """
        if isinstance(entity, list):
            return [self._rebuild(context, item) for item in entity]
        return self._rebuild(context, entity)

    def _rebuild(self, context: Any, entity: Any) -> Any:
        if isinstance(entity, dict) and _NAME in entity:
            return super().deserialize_entity(context, _as_known(entity))
        return entity


RESERVED_PREFIX: Final = f"{AttachdObject.OBJ_SERIAL_NAMESPACE}."
"""Keys of a serialized object begin with it; a dictionary of a client must have none of them."""


def find_reserved_key(value: Any) -> list[str] | None:
    """Return the path of a key in a JSON value that only serialized objects have.

    :returns: the path, with the key as its last part; None: there is no such key
    """
    waiting: list[tuple[Any, Any]] = [(None, value)]  # path: (path of the parent, key)
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, dict):
            for key in item:
                if key.startswith(RESERVED_PREFIX):
                    return _unlink((path, key))
            children: Iterable[tuple[Any, Any]] = item.items()
        elif isinstance(item, list):
            children = enumerate(item)
        else:
            continue
        waiting += (
            ((path, key), child)
            for key, child in children
            if child and isinstance(child, list | dict)
        )
    return None


def _unlink(path: Any) -> list[str]:
    parts: list[str] = []
    while path is not None:
        path, key = path
        parts.append(str(key))
    return parts[::-1]


_NAME, _VERSION, _DATA, _CHANGES = (
    f"{AttachdObject.OBJ_SERIAL_NAMESPACE}.{part}"
    for part in ("name", "version", "data", "changes")
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


Manifest = tuple[tuple[str, str], ...]

_RAISED = {"1.0": {"Attachment": "1.0", "Volume": "1.0"}}
"""With which versions of the contract (manager_api) came which of the objects."""


def manifest_of_contract(version: str) -> Manifest:
    """Return the object versions that belong to a version of the contract."""
    known: dict[str, str] = {}
    for since, raised in _RAISED.items():
        if number(since) <= number(version):
            known |= raised
    return tuple(sorted(known.items()))


def newest_manifest() -> Manifest:
    """Return the object versions of this code."""
    classes = Registry.obj_classes()
    return tuple(sorted((name, found[0].VERSION) for name, found in classes.items()))


def format_manifest(manifest: Manifest) -> str:
    """Format a manifest as ``Attachment 1.2, Volume 1.2``."""
    return ", ".join(" ".join(pair) for pair in manifest)


def parse_manifest(text: str) -> Manifest:
    """Parse the result of :func:`format_manifest`."""
    pairs = (part.partition(" ") for part in text.split(", "))
    return tuple((name, version) for name, _space, version in pairs)

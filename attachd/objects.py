# SPDX-License-Identifier: Apache-2.0
"""The objects that cross RPC, Volume and Attachment: their fields, versions and serialization.

The API loads them, the manager uses and returns them.
"""

from collections.abc import Iterable, Mapping
import datetime
import re
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self
import uuid

from oslo_utils.versionutils import convert_version_to_tuple as number
from oslo_versionedobjects import base, fields

from attachd import exception, states
from attachd.context import RequestContext
from attachd.db.attachments import store as attachments_db
from attachd.db.attachments.connect_rules import READONLY
from attachd.db.idempotency_keys import IdempotencyClaim
from attachd.db.row_types import AttachmentRow
from attachd.db.secrets import encryption
from attachd.db.volumes import store as volumes_db


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


@Registry.register
class Volume(AttachdObject):
    """A disk of some size at some backend.

    ``size_gib`` is in GiB, ``host`` is ``host@backend#pool``, times are UTC without a zone.
    """

    # 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "id": fields.StringField(),
        "project_id": fields.StringField(),
        "user_id": fields.StringField(nullable=True),
        "name": fields.StringField(nullable=True),
        "description": fields.StringField(nullable=True),
        "size_gib": fields.IntegerField(),
        "state": fields.StringField(),
        "status": fields.StringField(),
        "attach_status": fields.StringField(),
        "multiattach": fields.BooleanField(),
        "shared_targets": fields.BooleanField(nullable=True),
        "bootable": fields.BooleanField(),
        "volume_type_id": fields.StringField(nullable=True),
        "volume_type_name": fields.StringField(nullable=True),
        "availability_zone": fields.StringField(nullable=True),
        "host": fields.StringField(nullable=True),
        "source_volid": fields.StringField(nullable=True),
        "metadata": JsonField(),
        "admin_metadata": JsonField(),
        "error": fields.StringField(nullable=True),
        "launched_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
        "created_at": fields.DateTimeField(tzinfo_aware=False),
        "updated_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
    }

    @classmethod
    def get(cls, context: RequestContext, volume_id: str) -> "Volume":
        """Load one volume of the caller's project; raises VolumeNotFound."""
        return cls.from_row(context, volumes_db.get(volume_id, scope(context)))

    @classmethod
    def create(
        cls,
        context: RequestContext,
        values: Mapping[str, Any],
        idempotency_claim: IdempotencyClaim | None = None,
    ) -> "Volume":
        """Store a volume that the backend ``values["host"]`` has yet to create.

        :param idempotency_claim: of the key of the request
        """
        metadata = values.get("metadata", {})
        if idempotency_claim is None:
            row = volumes_db.create(values, metadata)
        else:
            row = volumes_db.create(
                {**values, "id": idempotency_claim.resource_id}, metadata, idempotency_claim.note
            )
        return cls.from_row(context, row)

    @property
    def backend(self) -> str:
        """The RPC server that serves this volume: ``host@backend``."""
        return backend_of(self.host)

    @property
    def readonly(self) -> bool:
        """Whether hosts may only read it."""
        return bool(self.admin_metadata.get(READONLY) == "True")

    def fire(self, event: states.Event, **values: Any) -> None:
        """Apply one transition of the state table, and store ``values``."""
        self._follow(volumes_db.transition(self.id, event, values), values)

    def extend(self, size_gib: int) -> None:
        """Apply the transition to extending; raises QuotaExceeded."""
        self._follow(volumes_db.extend(self.id, self.project_id, size_gib))

    def _follow(self, row: Mapping[str, Any], values: Iterable[str] = ()) -> None:
        for name in ("state", "status", "attach_status", *values):
            if name in self.fields:
                setattr(self, name, row[name])


def backend_of(host: str | None) -> str:
    """Return the backend of a volume's host: ``host@backend#pool`` without ``#pool``."""
    return (host or "").partition("#")[0]


@Registry.register
class Attachment(AttachdObject):
    """The attachment of one volume to one host.

    ``connector`` and ``connection_info`` contain secrets: lists omit them.  ``volume_host`` and
    ``volume_status`` are those of the volume when the object was loaded.
    """

    # 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "id": fields.StringField(),
        "volume_id": fields.StringField(),
        "project_id": fields.StringField(),
        "user_id": fields.StringField(nullable=True),
        "instance_uuid": fields.StringField(nullable=True),
        "kind": fields.StringField(),
        "state": fields.StringField(),
        "mode": fields.StringField(nullable=True),
        "host": fields.StringField(nullable=True),
        "mountpoint": fields.StringField(nullable=True),
        "connector": JsonField(nullable=True),
        "connection_info": JsonField(nullable=True),
        "connection_key": fields.StringField(nullable=True),
        "error": fields.StringField(nullable=True),
        "attached_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
        "expires_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
        "agent": fields.StringField(nullable=True),
        "device": fields.StringField(nullable=True),
        "move_from": fields.StringField(nullable=True),
        "created_at": fields.DateTimeField(tzinfo_aware=False),
        "updated_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
        "volume_host": fields.StringField(nullable=True),
        "volume_status": fields.StringField(),
    }

    @classmethod
    def get(cls, context: RequestContext, attachment_id: str) -> "Attachment":
        """Load one attachment of the caller's project; raises AttachmentNotFound."""
        row = attachments_db.get(attachment_id, scope(context))
        if row["kind"] not in states.VISIBLE_KINDS:
            raise exception.AttachmentNotFound(attachment_id=attachment_id)
        return cls.from_row(context, row)

    @classmethod
    def reserve(
        cls,
        context: RequestContext,
        volume: Volume,
        instance_uuid: str | None = None,
        mode: str | None = None,
        denied_rule: str | None = None,
        connector: Mapping[str, Any] | None = None,
        idempotency_claim: IdempotencyClaim | None = None,
        expires_at: datetime.datetime | None = None,
        agent: str | None = None,
        move_from: str | None = None,
    ) -> "Attachment":
        """Reserve the volume; raises what the statement in db raises.

        :param mode: "rw", "ro", or None: as much as is allowed
        :param denied_rule: the policy rule that forbids the caller to share the volume; None if
            the caller may
        :param connector: of the connect that follows at once, if one does; a duplicate request has
            the same
        :param idempotency_claim: of the key of the request
        :param expires_at: when the reservation expires unless it is connected; None: never
        :param agent: the host whose agent makes the device; None: the caller does
        :param move_from: the attachment that it takes over from; None: none
        """
        values = cls.reservation(context, volume, instance_uuid, mode, connector, agent, move_from)
        values["expires_at"] = expires_at
        first = None
        if idempotency_claim is not None:
            values["id"], first = idempotency_claim.resource_id, idempotency_claim.note
        is_free = volume.status == "available" and not volume.multiattach
        may_be_free = is_free and move_from is None
        row = attachments_db.reserve(
            volume.id, values, denied_rule, first, may_be_free=may_be_free
        )
        volume_seen = {"volume_host": volume.host, "volume_status": volume.status}
        return cls.from_row(context, {**_EMPTY, **row, **volume_seen})

    @staticmethod
    def reservation(
        context: RequestContext,
        volume: Volume,
        instance_uuid: str | None,
        mode: str | None,
        connector: Mapping[str, Any] | None,
        agent: str | None,
        move_from: str | None = None,
    ) -> dict[str, Any]:
        """Return the columns of a reservation that does not expire; see :meth:`reserve`."""
        return {
            "project_id": volume.project_id,
            "user_id": context.user_id,
            "instance_uuid": instance_uuid,
            "mode": "ro" if volume.readonly else mode,
            "asked_mode": mode,
            "connector": connector or None,
            "agent": agent,
            "move_from": move_from,
            "by_service": context.by_service or None,
        }

    @property
    def wire_state(self) -> str:
        """What the Block Storage API calls the attachment's state."""
        return states.AttachmentState(self.state).wire

    @property
    def backend(self) -> str:
        """The RPC server that serves the volume: ``host@backend``."""
        return backend_of(self.volume_host)

    def complete(self) -> None:
        """Record that the host uses the volume; raises InvalidTransition."""
        attachments_db.complete(
            {
                "id": self.id,
                "project_id": self.project_id,
                "volume_id": self.volume_id,
                "kind": self.kind,
                "host": self.host,
                "instance_uuid": self.instance_uuid,
            }
        )
        self.state = states.AttachmentState.ATTACHED.value

    def cancel(self) -> None:
        """Cancel a reservation; raises InvalidTransition if it is more than that."""
        attachments_db.transition(self.id, self.volume_id, states.Event.CANCEL)


_EMPTY: dict[str, Any] = dict.fromkeys(
    (
        "host",
        "mountpoint",
        "connector",
        "connection_info",
        "connection_key",
        "error",
        "device",
        "attached_at",
        "updated_at",
        "move_from",
    )
)


# The connection of an attachment, which the API and the agents return alike.

_BACKENDS: Final = uuid.UUID("7c6b1a3e-0e0f-4a0b-9d4c-1f7a5f3f4f10")


def flat_connection(row: AttachmentRow) -> dict[str, Any]:
    """Return the driver's connection info of an attachment, flat and with defaults.

    :param row: with a connection
    :returns: as os-brick's connect_volume() takes it, with ``driver_volume_type``; it contains
        secrets
    :raises SecretUnreadable: it cannot be decrypted
    """
    stored = encryption.decrypted(row, "connection_info")
    return {
        **connection_data(stored, row["mode"] or "rw"),
        "driver_volume_type": stored["driver_volume_type"],
        "attachment_id": row["id"],
        "enforce_multipath": (row["connector"] or {}).get("enforce_multipath", False),
    }


def connection_data(stored: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the connection data that a host gets, with defaults for what the driver omitted.

    :param stored: as drivers.base.ConnectionInfo
    """
    return {
        "qos_specs": None,
        "access_mode": mode,
        "encrypted": False,
        "cacheable": False,
        **stored["data"],
    }


_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|keyring|credential|(^|_)(secret|token|key)s?$", re.IGNORECASE
)
"""Matches names such as auth_password, keyring and dhchap_key, not secret_uuid.

Drivers choose the names, so a secret is recognised by its name at any depth."""


def redact(value: Any) -> Any:
    """Return a connection, or a part of it, without its secrets."""
    if isinstance(value, Mapping):
        return {key: redact(item) for key, item in value.items() if not _SECRET.search(str(key))}
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def service_uuid(backend: str) -> str:
    """Return the constant UUID of a backend; os-brick uses it as the name of a lock.

    :param backend: ``host@backend``
    """
    return str(uuid.uuid5(_BACKENDS, backend))


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

# SPDX-License-Identifier: Apache-2.0
"""An attachment, as the API loads it and the manager works on it, and what its host gets."""

from collections.abc import Mapping
import dataclasses
import datetime
import re
from typing import Any, Final
import uuid

from oslo_versionedobjects import fields

from attachd import exception, states
from attachd.context import RequestContext
from attachd.db.attachments import attachment_store
from attachd.db.idempotency_keys import IdempotencyClaim
from attachd.db.row_types import AttachmentRow
from attachd.db.secrets import encryption
from attachd.objects.base import AttachdObject, JsonField, Registry, scope
from attachd.objects.volume import Volume, backend_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewAttachment:
    """What is requested of an attachment that is not stored yet.

    :ivar mode: "rw", "ro", or None: as much as is allowed
    :ivar connector: of the connect that follows at once, if one does; a duplicate request has the
        same
    :ivar agent: the host whose agent makes the device; None: the caller does
    :ivar move_from: the attachment that it takes over from; None: none
    :ivar expires_at: when the reservation expires unless it is connected; None: never
    :ivar denied_rule: the policy rule that forbids the caller to share the volume; None if the
        caller may
    :ivar idempotency_claim: of the key of the request
    """

    instance_uuid: str | None = None
    mode: str | None = None
    connector: Mapping[str, Any] | None = None
    agent: str | None = None
    move_from: str | None = None
    expires_at: datetime.datetime | None = None
    denied_rule: str | None = None
    idempotency_claim: IdempotencyClaim | None = None

    def columns(self, context: RequestContext, volume: Volume) -> dict[str, Any]:
        """Return the columns of its row, without those of an expiry and of a key."""
        return {
            "project_id": volume.project_id,
            "user_id": context.user_id,
            "instance_uuid": self.instance_uuid,
            "mode": "ro" if volume.readonly else self.mode,
            "asked_mode": self.mode,
            "connector": self.connector or None,
            "agent": self.agent,
            "move_from": self.move_from,
            "by_service": context.by_service or None,
        }


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
        row = attachment_store.get(attachment_id, scope(context))
        if row["kind"] not in states.VISIBLE_KINDS:
            raise exception.AttachmentNotFound(attachment_id=attachment_id)
        return cls.from_row(context, row)

    @classmethod
    def reserve(
        cls, context: RequestContext, volume: Volume, new: "NewAttachment"
    ) -> "Attachment":
        """Reserve the volume; raises what the statement in db raises."""
        values = {**new.columns(context, volume), "expires_at": new.expires_at}
        first = None
        if new.idempotency_claim is not None:
            values["id"], first = new.idempotency_claim.resource_id, new.idempotency_claim.note
        is_free = volume.status == "available" and not volume.multiattach
        may_be_free = is_free and new.move_from is None
        row = attachment_store.reserve(
            volume.id, values, new.denied_rule, first, may_be_free=may_be_free
        )
        volume_seen = {"volume_host": volume.host, "volume_status": volume.status}
        return cls.from_row(context, {**_EMPTY, **row, **volume_seen})

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
        attachment_store.complete(
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
        attachment_store.transition(self.id, self.volume_id, states.Event.CANCEL)


_EMPTY: dict[str, Any] = dict.fromkeys(
    name for name, field in Attachment.fields.items() if field.nullable
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

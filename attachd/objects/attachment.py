# SPDX-License-Identifier: Apache-2.0
"""An attachment as it crosses RPC; loaded by the API, returned by the manager."""

from collections.abc import Mapping
import datetime
from typing import Any, Final
import uuid

from oslo_versionedobjects import fields

from attachd import exception, states
from attachd.context import RequestContext
from attachd.db.attachments import store as db
from attachd.db.idempotency_keys import IdempotencyClaim
from attachd.db.secrets import encryption
from attachd.objects import base
from attachd.objects.volume import Volume, backend_of


@base.Registry.register
class Attachment(base.AttachdObject):
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
        "connector": base.JsonField(nullable=True),
        "connection_info": base.JsonField(nullable=True),
        "connection_key": fields.StringField(nullable=True),
        "error": fields.StringField(nullable=True),
        "attached_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
        "expires_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
        "agent": fields.StringField(nullable=True),
        "device": fields.StringField(nullable=True),
        "created_at": fields.DateTimeField(tzinfo_aware=False),
        "updated_at": fields.DateTimeField(nullable=True, tzinfo_aware=False),
        "volume_host": fields.StringField(nullable=True),
        "volume_status": fields.StringField(),
    }

    @classmethod
    def get(cls, context: RequestContext, attachment_id: str) -> "Attachment":
        """Load one attachment of the caller's project; raises AttachmentNotFound."""
        row = db.get(attachment_id, base.scope(context))
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
        """
        values: dict[str, Any] = {
            "project_id": volume.project_id,
            "user_id": context.user_id,
            "instance_uuid": instance_uuid,
            "mode": "ro" if volume.readonly else mode,
            "asked_mode": mode,
            "connector": connector or None,
            "expires_at": expires_at,
            "agent": agent,
        }
        if idempotency_claim is None:
            row = db.reserve(volume.id, values, denied_rule)
        else:
            values["id"] = idempotency_claim.resource_id
            row = db.reserve(volume.id, values, denied_rule, idempotency_claim.note)
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
        db.complete({name: getattr(self, name) for name in _COMPLETE_COLUMNS})
        self.state = states.AttachmentState.ATTACHED.value

    def cancel(self) -> None:
        """Cancel a reservation; raises InvalidTransition if it is more than that."""
        db.move(self.id, self.volume_id, states.Event.CANCEL)


_COMPLETE_COLUMNS = ("id", "project_id", "volume_id", "kind", "host", "instance_uuid")
"""The fields that an event about an attachment needs."""

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
    )
)


# The connection of an attachment, which the API and the agents return alike.

_BACKENDS: Final = uuid.UUID("7c6b1a3e-0e0f-4a0b-9d4c-1f7a5f3f4f10")


def flat_connection(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the driver's connection info of an attachment, flat and with defaults.

    :param row: of an attachment with a connection
    :returns: as os-brick's connect_volume() takes it, with ``driver_volume_type``; it contains
        secrets
    :raises SecretUnreadable: it cannot be decrypted
    """
    stored = encryption.decrypted(row["connection_info"])
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


def service_uuid(backend: str) -> str:
    """Return the constant UUID of a backend; os-brick uses it as the name of a lock.

    :param backend: ``host@backend``
    """
    return str(uuid.uuid5(_BACKENDS, backend))

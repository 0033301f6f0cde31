# SPDX-License-Identifier: Apache-2.0
"""A volume, as the API loads it and the manager works on it."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from oslo_versionedobjects import fields

from attachd import states
from attachd.context import RequestContext
from attachd.db.attachments.connect_rules import READONLY
from attachd.db.idempotency_keys import IdempotencyClaim
from attachd.db.volumes import upload_snapshots, volume_store, volume_updates
from attachd.objects.base import AttachdObject, JsonField, Registry, scope


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
        "snapshot_id": fields.StringField(nullable=True),
        "image_id": fields.StringField(nullable=True),
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
        return cls.from_row(context, volume_store.get(volume_id, scope(context)))

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
            row = volume_store.create(values, metadata)
        else:
            row = volume_store.create(
                {**values, "id": idempotency_claim.resource_id}, metadata, idempotency_claim.note
            )
        return cls.from_row(context, row)

    @property
    def backend(self) -> str:
        """The RPC server that serves this volume: ``host@backend``."""
        return backend_of(self.host)

    @property
    def is_copy(self) -> bool:
        """Whether it gets its data from another volume, a snapshot or an image."""
        sources = ("source_volid", "snapshot_id", "image_id")
        return any(self.obj_attr_is_set(name) and getattr(self, name) for name in sources)

    @property
    def readonly(self) -> bool:
        """Whether hosts may only read it."""
        return bool(self.admin_metadata.get(READONLY) == "True")

    def fire(self, event: states.Event, **values: Any) -> None:
        """Apply one transition of the state table, and store ``values``."""
        row = volume_store.transition(self.id, event, values, project_id=self.project_id)
        self._follow(row, values)

    def begin_reimage(
        self, image_id: str, pairs: Mapping[str, str], statuses: Collection[str]
    ) -> None:
        """Apply the transition to getting another image; see volume_updates.begin_reimage()."""
        request = (self.id, image_id, pairs, statuses, self.project_id)
        self._follow(volume_updates.begin_reimage(*request))

    def begin_upload(self, image_id: str) -> None:
        """Apply the transition to being uploaded; raises InvalidTransition if it is not available.

        The manager has the lock of the volume meanwhile, so no host can use it.
        """
        values = {"upload_image_id": image_id, "error": None}
        row = volume_store.transition(
            *(self.id, states.Event.UPLOAD, values),
            statuses=("available",),
            project_id=self.project_id,
        )
        self._follow(row)

    def cancel_upload(self, image_id: str) -> None:
        """Undo it before a manager has begun; raises InvalidTransition if one has."""
        row = volume_store.transition(
            *(self.id, states.Event.UPLOAD_FAILED, {"upload_image_id": None}),
            expected={"upload_image_id": image_id},
        )
        self._follow(row)

    def begin_upload_in_use(self, image_id: str) -> None:
        """Apply the same transition to a volume in use, with a snapshot; see upload_snapshots."""
        self._follow(upload_snapshots.begin(self.id, self.project_id, image_id))

    def cancel_upload_in_use(self, image_id: str) -> None:
        """Undo it before a manager has begun; raises InvalidTransition if one has."""
        self._follow(upload_snapshots.cancel(self.id, image_id))

    def extend(self, size_gib: int) -> None:
        """Apply the transition to extending; raises QuotaExceeded."""
        self._follow(volume_store.extend(self.id, self.project_id, size_gib))

    def delete_with_snapshots(self) -> None:
        """Apply the transition to its deletion, with all its snapshots."""
        self._follow(volume_store.delete_with_snapshots(self.id, self.project_id))

    def revert(self, snapshot_id: str) -> None:
        """Apply the transition to reverting, with that of the snapshot."""
        self._follow(volume_store.revert(self.id, snapshot_id, self.project_id))

    def _follow(self, row: Mapping[str, Any], values: Iterable[str] = ()) -> None:
        for name in ("state", "status", "attach_status", *values):
            if name in self.fields:
                setattr(self, name, row[name])


def backend_of(host: str | None) -> str:
    """Return the backend of a volume's host: ``host@backend#pool`` without ``#pool``."""
    return (host or "").partition("#")[0]

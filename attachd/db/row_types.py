# SPDX-License-Identifier: Apache-2.0
"""The rows of the tables as typed dictionaries, by the names of their columns.

A test compares them with :mod:`attachd.db.models`, which describes the columns.  A key that is
``NotRequired`` is no column, or is left out of some rows.  Encrypted columns hold an
:class:`~attachd.db.secrets.encryption.Encrypted` until they are decrypted.
"""

import datetime
from typing import Any, NotRequired, TypedDict

from attachd.db.secrets.encryption import Encrypted


class QosSpecsRow(TypedDict):
    """QoS specs."""

    id: str
    name: str
    consumer: str
    specs: dict[str, str | None]
    created_at: datetime.datetime
    updated_at: datetime.datetime | None


class VolumeTypeRow(TypedDict):
    """A volume type."""

    id: str
    name: str
    description: str | None
    is_public: bool
    extra_specs: dict[str, str | None]
    qos_specs_id: str | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None


class DefaultTypeRow(TypedDict):
    """The default volume type of a project."""

    project_id: str
    volume_type_id: str


class VolumeStateRow(TypedDict):
    """The columns of a volume that its attachments and its lease depend on."""

    id: str
    size_gib: int
    state: str
    status: str
    attach_status: str
    pending_detaches: int
    multiattach: bool
    host: str | None
    provider: dict[str, Any]
    admin_metadata: dict[str, str]
    lease_holder: str | None
    lease_generation: int


class VolumeRow(VolumeStateRow):
    """A volume."""

    project_id: str
    user_id: str | None
    name: str | None
    description: str | None
    new_size_gib: int | None
    shared_targets: bool | None
    bootable: bool
    volume_type_id: str | None
    availability_zone: str | None
    backend_host: str | None
    source_volid: str | None
    snapshot_id: str | None
    image_id: str | None
    upload_image_id: str | None
    owner: str | None
    error: str | None
    launched_at: datetime.datetime | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    provider_secrets: dict[str, Any] | Encrypted | None


class VolumeWithMetadataRow(VolumeRow):
    """A volume, with its metadata and the name of its type."""

    metadata: dict[str, str]
    volume_type_name: str | None


class ListedVolumeRow(VolumeWithMetadataRow):
    """A volume of a list, with its metadata and that of its image."""

    image_metadata: dict[str, str]


class RecoverableVolumeRow(VolumeRow):
    """A volume that a manager has work to do on.

    :ivar orphaned: whether a dead process worked on it
    """

    orphaned: bool


class SnapshotRow(TypedDict):
    """A snapshot."""

    id: str
    volume_id: str
    project_id: str
    user_id: str | None
    name: str | None
    description: str | None
    size_gib: int
    volume_type_id: str | None
    bootable: bool
    state: str
    progress: int
    provider: dict[str, Any]
    provider_secrets: dict[str, Any] | Encrypted | None
    owner: str | None
    error: str | None
    lease_holder: str | None
    lease_generation: int
    created_at: datetime.datetime
    updated_at: datetime.datetime | None


class SnapshotWithVolumeRow(SnapshotRow):
    """A snapshot, with its metadata and columns of its volume."""

    metadata: dict[str, str]
    volume_host: str | None
    availability_zone: str | None


class TransferRow(TypedDict):
    """An offer of a volume to another project.

    :ivar project_id: of the volume
    """

    id: str
    volume_id: str
    project_id: str
    name: str | None
    salt: str
    key_digest: str
    no_snapshots: bool
    created_at: datetime.datetime
    updated_at: datetime.datetime | None


class RecoverableSnapshotRow(SnapshotRow):
    """A snapshot that a manager has work to do on.

    :ivar orphaned: whether a dead process worked on it
    """

    orphaned: bool


class DriverVolume(TypedDict):
    """What a driver gets of a volume and of its type; without a type there are no specs."""

    id: str
    size_gib: int
    provider: dict[str, Any]
    provider_secrets: dict[str, Any] | Encrypted | None
    name: str | None
    project_id: str
    host: str | None
    multiattach: bool
    type_specs: dict[str, str | None] | None
    back_end_qos: dict[str, str | None] | None


class DriverVolumeRow(VolumeRow):
    """A volume, with what its driver gets of its type."""

    type_specs: dict[str, str | None] | None
    back_end_qos: dict[str, str | None] | None


class LockedVolumeRow(VolumeStateRow):
    """A volume that is locked for a change of its attachments.

    Which keys it has besides those of VolumeStateRow depends on the statement that locks it.

    :ivar front_end_qos: the QoS specs that hosts enforce
    :ivar any_host_closed: whether any host is fenced or drained
    :ivar attachments_quota: of its project
    :ivar updated_at: once a transaction has changed the volume
    """

    name: str | None
    project_id: str
    provider_secrets: dict[str, Any] | Encrypted | None
    type_specs: dict[str, str | None] | None
    back_end_qos: dict[str, str | None] | None
    front_end_qos: dict[str, str | None] | None
    any_host_closed: bool
    attachments_quota: int | None
    updated_at: NotRequired[datetime.datetime]


class AttachmentRow(TypedDict):
    """An attachment, or a hold or connection of the older calls."""

    id: str
    volume_id: str
    project_id: str
    user_id: str | None
    instance_uuid: str | None
    kind: str
    parent_id: str | None
    state: str
    mode: str | None
    asked_mode: str | None
    host: str | None
    mountpoint: str | None
    connector: dict[str, Any] | None
    connection_info: dict[str, Any] | Encrypted | None
    connection_key: str | None
    secret: str | Encrypted | None
    generation: int
    error: str | None
    attached_at: datetime.datetime | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    expires_at: datetime.datetime | None
    agent: str | None
    device: str | None
    by_service: bool | None
    provider_secrets: dict[str, Any] | Encrypted | None
    fenced: bool | None
    condition_state: str | None
    observed: dict[str, Any] | None
    move_from: str | None
    own_connection: bool | None
    host_key: str | None
    initiator_key: str | None
    device_origin: str | None
    secret_agent: str | None
    secret_generation: int | None


class AttachmentVersion(TypedDict):
    """An attachment as it was read, to find out whether it was changed since."""

    id: str
    volume_id: str
    state: str
    generation: int


class AttachmentWithVolumeRow(AttachmentRow):
    """An attachment, with columns of its volume."""

    volume_host: str | None
    volume_state: str
    volume_status: str
    volume_multiattach: bool


class RecoverableAttachmentRow(AttachmentWithVolumeRow):
    """An attachment that a manager has work to do on.

    :ivar orphaned: whether a dead process worked on its volume
    """

    orphaned: bool


class ServiceRow(TypedDict):
    """The last report of a backend or another service.

    :ivar alive: whether it reported within ``service_down_time``; lists have it
    """

    id: str
    binary: str
    host: str
    availability_zone: str
    disabled: bool
    disabled_reason: str | None
    frozen: bool
    up: bool
    error: str | None
    report: dict[str, Any] | None
    seen_at: datetime.datetime
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    rpc_version: str | None
    object_version: str | None
    versioned_at: datetime.datetime | None
    alive: NotRequired[bool]


class StorageRow(TypedDict):
    """The storage of a pool of a backend."""

    backend: str
    pool: str
    storage_id: str


class MemberRow(TypedDict):
    """A living manager process."""

    id: str
    name: str
    started_at: datetime.datetime
    seen_at: datetime.datetime
    consumers: int | None
    probed_at: datetime.datetime | None
    queue_probed_at: datetime.datetime | None


class MachineRow(TypedDict):
    """What is stored of the machine whose reports are accepted as those of a host's agent.

    :ivar key_digest: left out where rows leave the module of the table
    :ivar any_host_fenced: whether a host is fenced, not whether it is this one
    """

    host: str
    key_digest: NotRequired[str]
    boot_id: str | None
    machine_id: str | None
    report_process: str | None
    report_start: int | None
    report_number: int | None
    report_token: str | None
    journal_losses: int | None
    former_boot_at: datetime.datetime | None
    heartbeat_at: datetime.datetime | None
    conflict: dict[str, Any] | None
    refused_boots: list[str] | None
    initiators: list[str] | None
    content_number: int | None
    libvirt_secrets: bool | None
    any_host_fenced: NotRequired[bool]


class AgentRow(MachineRow):
    """A host that runs an agent.

    :ivar alive: whether it reported within ``[agent]down_time``; lists have it
    """

    normal_name: str
    connector: dict[str, Any] | None
    devices: list[dict[str, Any]] | None
    connector_type: str | None
    version: str | None
    error: str | None
    seen_at: datetime.datetime | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    orphan_devices: list[dict[str, Any]] | None
    lease: int | None
    silent_at: datetime.datetime | None
    lost_at: datetime.datetime | None
    lost_action: str | None
    believed_until: datetime.datetime | None
    libvirt_secrets: bool | None
    observed: dict[str, Any] | None
    max_attachments: int | None
    alive: NotRequired[bool]


class HostFenceRow(TypedDict):
    """A host that was ever fenced or drained."""

    host: str
    generation: int
    fenced_at: datetime.datetime | None
    reason: str | None
    user_id: str | None
    boot_id: str | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    drained_at: datetime.datetime | None
    drain_reason: str | None
    drain_user_id: str | None
    drain_detach: dict[str, str] | None
    drain_ended: bool | None
    last_fenced_at: datetime.datetime | None
    notified: str | None
    notify_after: datetime.datetime | None
    lift: str | None
    host_key: str | None


class HostIdentityRow(TypedDict):
    """The host of an initiator or machine id."""

    identifier: str
    host: str
    host_key: str
    source: str
    created_at: datetime.datetime
    updated_at: datetime.datetime | None


class ComputeEventRow(TypedDict):
    """An event that Compute is still to be sent."""

    id: str
    volume_id: str
    server_id: str
    name: str
    tag: str
    attempts: int
    next_attempt_at: datetime.datetime
    error: str | None
    created_at: datetime.datetime


class MessageRow(TypedDict):
    """A message for users."""

    id: str
    project_id: str
    request_id: str | None
    resource_type: str
    resource_uuid: str | None
    action_id: str
    detail_id: str
    details: dict[str, str | None] | None
    event_id: str
    message_level: str
    expires_at: datetime.datetime
    created_at: datetime.datetime
    updated_at: datetime.datetime | None


class AttachmentSetRow(TypedDict):
    """Attachments that are attached together, as long as not all of them are.

    :ivar undoing: whether they are being removed again
    """

    id: str
    attachment_ids: list[str]
    expires_at: datetime.datetime
    undoing: bool
    created_at: datetime.datetime


class IdempotencyKeyRow(TypedDict):
    """A request with an idempotency key.

    :ivar answer: any JSON value
    """

    digest: str
    fingerprint: str
    resource_id: str
    made: bool
    status: int | None
    answer: Any
    expires_at: datetime.datetime
    created_at: datetime.datetime


class _EventColumns(TypedDict):
    id: int
    created_at: datetime.datetime
    project_id: str
    volume_id: str
    attachment_id: str
    type: str
    details: dict[str, Any]


class EventRow(_EventColumns):
    """An event of an attachment."""

    revision: int | None


class NumberedEventRow(_EventColumns):
    """An event that has its number among all events."""

    revision: int

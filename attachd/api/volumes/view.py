# SPDX-License-Identifier: Apache-2.0
"""Volumes as answers show them, by microversion."""

from collections.abc import Mapping, Sequence
import dataclasses
import datetime
from typing import Annotated, Any, Final, Literal, NotRequired, Self, TypedDict

from attachd.api import endpoint, policy_rules
from attachd.api import microversions as mv
from attachd.api.volumes import policy
from attachd.context import RequestContext
from attachd.db.row_types import AttachmentRow
from attachd.db.volumes.volume_updates import PROGRESS
from attachd.objects import Volume, service_uuid
from attachd.states import AttachmentState, VolumeState

Pairs = Mapping[str, str]
Version = mv.Version
Links = endpoint.Links


class VolumeSummary(TypedDict):
    """A volume in a list without details.

    :ivar attachment_count: how many of its attachments are ``attached``
    """

    id: str
    name: str | None
    links: list[endpoint.Link]
    attachment_count: NotRequired[Annotated[int, mv.ATTACHD_1_0]]


class VolumeAttachment(TypedDict):
    """An attachment inside of its volume.

    :ivar id: of the volume
    :ivar host_name: for administrators and services; null for others
    """

    id: str
    attachment_id: str
    volume_id: str
    server_id: str | None
    host_name: str | None
    device: str | None
    attached_at: datetime.datetime | None
    status: NotRequired[Annotated[str, mv.ATTACHD_1_0]]
    attach_mode: NotRequired[Annotated[str | None, mv.ATTACHD_1_0]]
    attached_host: NotRequired[Annotated[str | None, mv.ATTACHD_1_0]]
    created_at: NotRequired[Annotated[datetime.datetime, mv.ATTACHD_1_0]]


class BaseDetail(TypedDict):
    """A volume as in the first version.

    :ivar size: in GiB
    :ivar bootable: "true" or "false"
    :ivar migration_status: for administrators
    :ivar attachments: those that are attached; under attachd 1.0 all
    :ivar attachment_count: how many of them are ``attached``
    :ivar progress: per cent that are copied, of a clone that is being created; absent until its
        driver reports it
    """

    id: str
    status: str
    size: int
    availability_zone: str | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    name: str | None
    description: str | None
    volume_type: str | None
    snapshot_id: str | None
    source_volid: str | None
    metadata: dict[str, str]
    links: list[endpoint.Link]
    user_id: str | None
    bootable: Literal["true", "false"]
    encrypted: bool
    replication_status: None
    consistencygroup_id: None
    multiattach: bool
    attachments: list[VolumeAttachment]
    attachment_count: NotRequired[Annotated[int, mv.ATTACHD_1_0]]
    progress: NotRequired[Annotated[int, mv.ATTACHD_1_0]]
    migration_status: NotRequired[None]


class VolumeDetail(BaseDetail):
    """A volume.

    :ivar provider_id: for administrators, as ``cluster_name``
    """

    group_id: Annotated[None, mv.GROUP_VOLUME]
    provider_id: NotRequired[Annotated[None, mv.VOLUME_DETAIL_PROVIDER_ID]]
    shared_targets: Annotated[bool | None, mv.VOLUME_SHARED_TARGETS_AND_SERVICE_FIELDS]
    service_uuid: Annotated[str | None, mv.VOLUME_SHARED_TARGETS_AND_SERVICE_FIELDS]
    cluster_name: NotRequired[Annotated[None, mv.VOLUME_CLUSTER_NAME]]
    volume_type_id: Annotated[str | None, mv.VOLUME_TYPE_ID_IN_VOLUME_DETAIL]
    consumes_quota: Annotated[bool, mv.USE_QUOTA]


_Extended = TypedDict(
    "_Extended",
    {
        "os-vol-host-attr:host": NotRequired[str | None],
        "os-vol-mig-status-attr:migstat": NotRequired[None],
        "os-vol-mig-status-attr:name_id": NotRequired[None],
        "os-vol-tenant-attr:tenant_id": NotRequired[str],
    },
)


class Detail(VolumeDetail, _Extended):
    """A volume with the fields that depend on policy.

    :ivar volume_image_metadata: of the image that is on it, if there is one
    """

    volume_image_metadata: NotRequired[dict[str, str]]


LIST_EXTRAS: Final = {
    "volumes_links": NotRequired[list[endpoint.Link]],
    "count": NotRequired[Annotated[int, mv.SUPPORT_COUNT_INFO]],
}
"""What a list may have besides the volumes."""

_STATUSES: Final = {"managing": "creating", "error_managing": "error"}
"""Statuses that clients know by another name.

Source: the Block Storage service's view of volumes."""

_VISIBLE = ("readonly", "attached_mode")
"""Keys of the administrative metadata that are shown among the users' own."""


@dataclasses.dataclass(frozen=True)
class Viewer:
    """The caller of a request: what they may see, in which microversion.

    :ivar host: whether they may see the backends of volumes
    :ivar migration: whether they may see the migration status of volumes
    :ivar project: whether they may see the projects of volumes
    :ivar image_metadata: whether they may see the image metadata of volumes
    :ivar host_names: whether they may see the hosts of attachments
    :ivar extended: whether the fields of attachd's own API are shown
    """

    version: mv.Version
    links: Links
    is_admin: bool
    host: bool
    migration: bool
    project: bool
    image_metadata: bool
    host_names: bool
    extended: bool

    @classmethod
    def from_context(cls, ctx: RequestContext, version: mv.Version, links: Links) -> Self:
        """Ask policy once, for all volumes of an answer."""
        target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
        return cls(
            version=version,
            links=links,
            is_admin=bool(ctx.is_admin),
            host=policy_rules.allows(ctx, policy.HOST_ATTRIBUTE, target),
            migration=policy_rules.allows(ctx, policy.MIGRATION_ATTRIBUTE, target),
            project=policy_rules.allows(ctx, policy.PROJECT_ATTRIBUTE, target),
            image_metadata=policy_rules.allows(ctx, policy.SHOW_IMAGE_METADATA, target),
            host_names=bool(ctx.is_admin) or "service" in ctx.roles,
            extended=ctx.attachd_version is not None,
        )


def summary(volume: Volume, viewer: Viewer) -> dict[str, Any]:
    """Return a volume in a list without details."""
    return {
        "id": volume.id,
        "name": volume.name,
        "links": viewer.links.build("volumes", volume.id),
    }


def summary_with_count(volume: Volume, attached: int, viewer: Viewer) -> dict[str, Any]:
    """Return a volume in such a list under attachd 1.0.

    :param attached: how many of its attachments are attached
    """
    return {**summary(volume, viewer), "attachment_count": attached}


def created(volume: Volume, viewer: Viewer) -> dict[str, Any]:
    """Return a volume that its backend has not created yet.

    One that no backend can serve is in error, which the next answer shows, as in Cinder.
    """
    shown = updated(volume, (), viewer) | {"metadata": volume.metadata}
    if volume.host is None:
        shown["status"] = VolumeState.CREATING.value
    if viewer.version >= mv.VOLUME_SHARED_TARGETS_AND_SERVICE_FIELDS:
        shown |= {"shared_targets": True, "service_uuid": None}
    return shown


def detail(
    volume: Volume, attachments: Sequence[AttachmentRow], image_metadata: Pairs, viewer: Viewer
) -> dict[str, Any]:
    """Return all fields of a volume.

    :param attachments: of the volume, in any state, as of attachment_queries.list_of_volumes()
    :param image_metadata: of the image that is on the volume
    """
    shown = updated(volume, attachments, viewer)
    if image_metadata and viewer.image_metadata:
        shown["volume_image_metadata"] = image_metadata
    if viewer.host:
        shown["os-vol-host-attr:host"] = volume.host
    if viewer.migration:
        shown |= {"os-vol-mig-status-attr:migstat": None, "os-vol-mig-status-attr:name_id": None}
    if viewer.project:
        shown["os-vol-tenant-attr:tenant_id"] = volume.project_id
    return shown


def updated(
    volume: Volume, attachments: Sequence[AttachmentRow], viewer: Viewer
) -> dict[str, Any]:
    """Return a volume as in the answer to its update: without the extended attributes."""
    shown = {
        "id": volume.id,
        "status": _STATUSES.get(volume.status, volume.status),
        "size": volume.size_gib,
        "availability_zone": volume.availability_zone,
        "created_at": volume.created_at,
        "updated_at": volume.updated_at,
        "name": volume.name,
        "description": volume.description,
        "volume_type": volume.volume_type_name,
        "snapshot_id": volume.snapshot_id,
        "source_volid": _find_source(volume),
        "metadata": volume.metadata | _visible_admin_metadata(volume),
        "links": viewer.links.build("volumes", volume.id),
        "user_id": volume.user_id,
        "bootable": str(volume.bootable).lower(),
        "encrypted": False,
        "replication_status": None,
        "consistencygroup_id": None,
        "multiattach": volume.multiattach,
        **_attachments(attachments, viewer),
    }
    if viewer.extended and volume.state in {VolumeState.CREATING, VolumeState.DOWNLOADING}:
        copied = volume.admin_metadata.get(PROGRESS)
        shown |= {} if copied is None else {"progress": int(copied)}
    if viewer.is_admin:
        shown["migration_status"] = None
    return shown | _versioned_fields(volume, viewer)


def _find_source(volume: Volume) -> str | None:
    """Return the source of a clone; while a volume of an image is created, that is the cache."""
    if volume.image_id and volume.state == VolumeState.CREATING:
        return None
    return volume.source_volid


def _versioned_fields(volume: Volume, viewer: Viewer) -> dict[str, Any]:
    """Return the fields that came with later microversions."""
    version = viewer.version
    shown: dict[str, Any] = {}
    if version >= mv.GROUP_VOLUME:
        shown["group_id"] = None
    if viewer.is_admin and version >= mv.VOLUME_DETAIL_PROVIDER_ID:
        shown["provider_id"] = None
    if version >= mv.VOLUME_SHARED_TARGETS_AND_SERVICE_FIELDS:
        shown |= {
            "shared_targets": _shared_targets(volume, version),
            "service_uuid": _service_uuid(volume),
        }
    if viewer.is_admin and version >= mv.VOLUME_CLUSTER_NAME:
        shown["cluster_name"] = None
    if version >= mv.VOLUME_TYPE_ID_IN_VOLUME_DETAIL:
        shown["volume_type_id"] = volume.volume_type_id
    if version >= mv.USE_QUOTA:
        shown["consumes_quota"] = True
    return shown


def _visible_admin_metadata(volume: Volume) -> dict[str, str]:
    known: Pairs = volume.admin_metadata
    return {key: known[key] for key in _VISIBLE if key in known}


def _service_uuid(volume: Volume) -> str | None:
    return service_uuid(volume.backend) if volume.host else None


def _shared_targets(volume: Volume, version: Version) -> bool | None:
    """Return whether hosts share a target; versions without null show true instead."""
    shared: bool | None = volume.shared_targets
    return True if shared is None and version < mv.SHARED_TARGETS_TRISTATE else shared


def _attachments(rows: Sequence[AttachmentRow], viewer: Viewer) -> dict[str, Any]:
    """Return those that are attached; under attachd 1.0 all, and how many are attached."""
    attached = [row for row in rows if row["state"] == AttachmentState.ATTACHED]
    if not viewer.extended:
        return {"attachments": [_attachment(row, viewer) for row in attached]}
    shown = [{**_attachment(row, viewer), **_ext_fields(row)} for row in rows]
    return {"attachments": shown, "attachment_count": len(attached)}


def _ext_fields(attachment: AttachmentRow) -> dict[str, Any]:
    """Return the fields of attachd 1.0; the caller owns the volume, so it may see the host."""
    return {
        "status": AttachmentState(attachment["state"]).wire,
        "attach_mode": attachment["mode"],
        "attached_host": attachment["host"],
        "created_at": attachment["created_at"],
    }


def _attachment(attachment: AttachmentRow, viewer: Viewer) -> dict[str, Any]:
    """Return an attachment inside its volume: its ``id`` here is the volume's."""
    return {
        "id": attachment["volume_id"],
        "attachment_id": attachment["id"],
        "volume_id": attachment["volume_id"],
        "server_id": attachment["instance_uuid"],
        "host_name": attachment["host"] if viewer.host_names else None,
        "device": attachment["mountpoint"] or ("na" if attachment["host"] else None),
        "attached_at": attachment["attached_at"],
    }

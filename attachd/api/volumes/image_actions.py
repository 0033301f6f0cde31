# SPDX-License-Identifier: Apache-2.0
"""Actions that make images of volumes, and write other images to volumes.

Source: the Block Storage API, "Upload volume to image" and "Reimage a volume".
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from oslo_utils import uuidutils

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import validation
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.volumes import backend_calls, image_lookup, load, policy, schema
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.types import type_store
from attachd.db.volumes import volume_metadata
from attachd.images import checks
from attachd.images.glance import BASE, SIGNATURE
from attachd.objects import Volume

PATH: Final = "/volumes/{volume_id}/action"

Body = dict[str, Any]

_OWN: Final = BASE | {
    *("image_id", "image_name", "signature_verified"),  # of the image that is on the volume
    *("location", "deleted", "deleted_at"),  # that the Image service reserves
}
"""Image metadata of a volume that is not a property of its next image."""
_RESERVED: Final = ("os_glance", SIGNATURE)
"""What names of properties begin with that only the Image service sets, or that are not right for
other data."""


_IN_USE: Final = "in-use"


class UploadedType(TypedDict):
    """The type of a volume, as in the answer."""

    id: str
    name: str
    description: str | None
    is_public: bool


class Uploaded(TypedDict):
    """The answer: a volume that is uploaded, and its image."""

    id: str
    updated_at: Any
    status: str
    display_description: str | None
    size: int
    volume_type: UploadedType | None
    image_id: str
    container_format: str
    disk_format: str
    image_name: str
    visibility: NotRequired[Annotated[str, mv.UPLOAD_IMAGE_PARAMS]]
    protected: NotRequired[Annotated[bool, mv.UPLOAD_IMAGE_PARAMS]]


@action(
    PATH,
    "os-volume_upload_image",
    policy=policy.UPLOAD_IMAGE,
    body=schema.UPLOAD_IMAGE,
    doc=EndpointDoc({"os-volume_upload_image": Uploaded}, faults=(409,)),
)
def upload(
    ctx: RequestContext, volume_id: str, body: Mapping[str, Any], version: mv.Version
) -> Body:
    """Make an image, and have a manager send the volume to it."""
    volume = load.get(ctx, volume_id, policy.UPLOAD_IMAGE)
    force = validation.parse_bool("force", body.get("force", False))
    in_use = force and CONF.glance.enable_force_upload and volume.status == _IN_USE
    upload_volume = backend_calls.upload_in_use if in_use else backend_calls.upload
    fields = _fields_of_image(ctx, volume, body)
    image_id = uuidutils.generate_uuid()
    api = image_lookup.connect(ctx)
    owner = {} if ctx.auth_token else {"owner": ctx.project_id}
    new = {**_properties(volume), **fields, **owner}
    try:
        image = backend_calls.NewImage(
            image_id,
            lambda: api.create(image_id, new),
            lambda: api.delete_without_data(image_id),
        )
        upload_volume(ctx, volume, image)
    except exception.InvalidTransition as error:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} status must be available to upload, currently "
            f"{volume.status}. A clone of a volume in use can be uploaded."
        ) from error
    return {"os-volume_upload_image": _uploaded(volume, image_id, fields, version)}


def _fields_of_image(
    ctx: RequestContext, volume: Volume, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the attributes of the new image.

    :raises BadRequest: a format is not supported
    :raises Forbidden: the caller may make no public image
    """
    fields = {
        "name": body["image_name"],
        "disk_format": body.get("disk_format", "raw"),
        "container_format": body.get("container_format") or "bare",
        "visibility": body.get("visibility", "private"),
        "protected": validation.parse_bool("protected", body.get("protected", False)),
    }
    if fields["disk_format"] not in CONF.glance.disk_formats:
        raise exception.BadRequest(
            reason=f"A volume cannot be uploaded as {fields['disk_format']}: take one of "
            f"{', '.join(CONF.glance.disk_formats)}."
        )
    if fields["container_format"] != "bare":
        raise exception.BadRequest(
            reason=f"A volume cannot be uploaded in a container, {fields['container_format']}: "
            "take bare."
        )
    if fields["visibility"] == "public":
        ctx.authorize(policy.UPLOAD_PUBLIC, volume)
    return fields


def _properties(volume: Volume) -> dict[str, str]:
    """Return the properties of the image that is on a volume."""
    pairs = volume_metadata.get_image_metadata(volume.id)
    return {
        key: value
        for key, value in pairs.items()
        if key not in _OWN and not key.startswith(_RESERVED)
    }


_NEWER: Final = frozenset({"visibility", "protected"})
"""Fields that the answer has since microversion 3.1; older ones make a private image."""


def _uploaded(
    volume: Volume, image_id: str, fields: Mapping[str, Any], version: mv.Version
) -> dict[str, Any]:
    hidden = {"name"} if version >= mv.UPLOAD_IMAGE_PARAMS else {"name", *_NEWER}
    known = type_store.get(volume.volume_type_id) if volume.volume_type_id else None
    names = ("id", "name", "description", "is_public")
    return {
        "id": volume.id,
        "updated_at": volume.updated_at,
        "status": volume.status,
        "display_description": volume.description,
        "size": volume.size_gib,
        "volume_type": {name: known[name] for name in names} if known else None,  # type: ignore[literal-required]
        "image_id": image_id,
        "image_name": fields["name"],
        **{key: value for key, value in fields.items() if key not in hidden},
    }


@action(
    PATH,
    "os-reimage",
    since=mv.SUPPORT_REIMAGE_VOLUME,
    policy=policy.REIMAGE,
    body=schema.REIMAGE,
    doc=EndpointDoc(faults=(409,)),
)
def reimage(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Have a manager write an image to a volume; its former data is lost."""
    volume = Volume.get(ctx, volume_id)
    is_reserved = volume.status == "reserved"
    ctx.authorize(policy.REIMAGE_RESERVED if is_reserved else policy.REIMAGE, volume)
    statuses = ["available", "error"]
    if validation.parse_bool("reimage_reserved", body.get("reimage_reserved", False)):
        statuses.append("reserved")
    image = image_lookup.connect(ctx).get(body["image_id"])
    checks.check_usable(image, volume.size_gib)
    try:
        backend_calls.reimage(ctx, volume, image, statuses)
    except exception.InvalidTransition as error:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} status must be {' or '.join(statuses)}, but current "
            f"status is {volume.status}."
        ) from error

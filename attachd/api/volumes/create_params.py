# SPDX-License-Identifier: Apache-2.0
"""Values of a new volume, from a request to create one.

Functions with an argument ``source`` take None for a volume that is no clone and not made of a
snapshot.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from oslo_utils import uuidutils

from attachd import exception, multiattach
from attachd.api import scheduler, validation
from attachd.api.types import lookup
from attachd.api.volumes import backend_calls, image_lookup, load, policy, schema
from attachd.api.volumes.snapshot_source import SnapshotSource, requested_snapshot
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import quotas
from attachd.db.row_types import VolumeTypeRow
from attachd.db.types import type_store
from attachd.db.volumes import clone_source
from attachd.images import checks
from attachd.images.glance import Image
from attachd.objects import Volume
from attachd.states import VolumeState

CreateRequest = Mapping[str, Any]
Source = Volume | SnapshotSource


def build(ctx: RequestContext, requested: CreateRequest) -> dict[str, Any]:
    """Return the values of a new volume, its backend among them.

    :param requested: ``volume`` of the body, as its schema lets it through
    :raises BadRequest: a field is not supported, or no backend fits
    :raises NotFound: it names a backup or the like by its id
    :raises VolumeTypeNotFound: the caller sees no such type
    :raises Forbidden: the type is multiattach, which policy denies the caller
    :raises QuotaExceeded: no backend fits, and the quota of the caller's project is exceeded
    :raises VolumeNotFound: the caller sees no such source
    :raises SnapshotNotFound: the caller sees no such snapshot
    :raises InvalidSnapshot: its state does not allow it
    :raises ImageUnacceptable: no volume can be made of the image
    :raises Unavailable: the Image service does not answer
    """
    _reject_unsupported(requested)
    image = image_lookup.requested_image(ctx, requested)
    if image is not None and (snapshot_id := image.find_snapshot()) is not None:
        requested = {
            **{key: value for key, value in requested.items() if key not in image_lookup.FIELDS},
            "snapshot_id": snapshot_id,
        }
        image = None
    snapshot = requested_snapshot(ctx, requested)
    source = snapshot or source_volume(ctx, requested)
    volume_type = requested_type(ctx, requested, source, image)
    specs = volume_type["extra_specs"] if volume_type else {}
    may_be_shared = authorize_sharing(ctx, volume_type)
    size = requested_size(requested, source)
    check_size(volume_type, size)
    if image is not None:
        checks.check_usable(image, size)
        specs = {**specs, **_WRITABLE}
    zone = requested.get("availability_zone")
    type_id = volume_type["id"] if volume_type else None
    with backend_calls.quota_error_first(
        str(ctx.project_id), quotas.deltas_of_create(type_id, size)
    ):
        place = _select_or_fail(ctx, source, size, specs, zone)
    return {
        **name_and_description(requested),
        "project_id": ctx.project_id,
        "user_id": ctx.user_id,
        "size_gib": size,
        "multiattach": may_be_shared,
        "bootable": image is not None or (source is not None and bool(source.bootable)),
        "source_volid": source.id if isinstance(source, Volume) else None,
        "snapshot_id": snapshot.id if snapshot else None,
        **_image_values(image),
        "volume_type_id": type_id,
        "volume_type_name": volume_type["name"] if volume_type else None,
        "type_specs": volume_type["extra_specs"] if volume_type else {},
        "metadata": requested.get("metadata") or {},
        **place,
    }


_WRITABLE: Final = MappingProxyType({"direct_access": "<is> True"})
"""What a backend needs so that managers can write an image to its volumes."""


def _image_values(image: Image | None) -> dict[str, Any]:
    """Return what is stored of an image."""
    return {"image_id": image.id, "image_metadata": image.metadata} if image else {}


def _select_or_fail(
    ctx: RequestContext,
    source: Source | None,
    size_gib: int,
    specs: Mapping[str, str | None],
    zone: str | None,
) -> dict[str, Any]:
    """Return the columns of the destination; or those of a volume in error that has none.

    The Block Storage API makes a volume in error where no backend has what a type asks for.
    Types that say how volumes are shared, and attachd 1.0, get the refusal at once.

    :raises: as :func:`select_destination`
    """
    try:
        place = select_destination(source, size_gib, specs, zone)
    except exception.CapabilityMissing as error:
        if ctx.attachd_version is not None or multiattach.KEYS & specs.keys():
            raise
        return {
            "state": VolumeState.ERROR.value,
            "error": str(error),
            "availability_zone": zone or CONF.storage_availability_zone,
        }
    return {"host": place.host, "availability_zone": place.availability_zone}


def authorize_sharing(ctx: RequestContext, volume_type: VolumeTypeRow | None) -> bool:
    """Return whether volumes of a type are multiattach.

    :raises Forbidden: they are, which policy denies the caller
    """
    is_shared = multiattach.parse(volume_type["extra_specs"] if volume_type else {}).multiattach
    if is_shared:
        ctx.authorize(policy.MULTIATTACH)
    return is_shared


def name_and_description(requested: CreateRequest) -> dict[str, str | None]:
    """Return name and description, if given, under either of their keys."""
    values = {}
    for name in ("name", "description"):
        for key in (f"display_{name}", name):
            if key in requested:
                text = requested[key]
                values[name] = text.strip() if text else text
    return values


def _reject_unsupported(requested: CreateRequest) -> None:
    for field, things in schema.REFUSED.items():
        if value := requested.get(field):
            reason = f"{field} is not supported: this service has no {things}. Leave it out."
            if field in schema.FOUND_NOWHERE and uuidutils.is_uuid_like(value):
                raise exception.NotFound(reason)
            raise exception.BadRequest(reason=reason)
    if validation.parse_bool("multiattach", requested.get("multiattach") or False):
        raise exception.BadRequest(
            reason="multiattach parameter has been removed. A volume can be attached several "
            "times if its volume type says so: choose one with the extra spec "
            "multiattach='<is> True'."
        )


def source_volume(ctx: RequestContext, requested: CreateRequest) -> Volume | None:
    """Return the volume that is to be cloned.

    :raises VolumeNotFound: the caller's project has none
    :raises InvalidVolume: its state does not allow cloning
    """
    if not requested.get("source_volid"):
        return None
    source = load.get(ctx, requested["source_volid"], policy.GET)
    if source.status not in clone_source.CLONEABLE_STATUSES:
        raise clone_source.not_cloneable(source.id, source.status)
    return source


_TYPE_PROPERTY: Final = "cinder_img_volume_type"
"""The property of an image that names a type.

Source: the Image service's administration guide, "Useful image properties".
"""


def requested_type(
    ctx: RequestContext,
    requested: CreateRequest,
    source: Source | None,
    image: Image | None = None,
) -> VolumeTypeRow | None:
    """Return the requested type, or that of the source or image, or the default.

    :raises VolumeTypeNotFound: the caller sees no such type
    """
    name = requested.get("volume_type")
    if name:
        return lookup.get_by_id_or_name(ctx, name)
    if source is None:
        return _type_of_image(ctx, image) or lookup.default(ctx)
    # The source's type applies even if it has become private since.
    return type_store.get(source.volume_type_id) if source.volume_type_id else None


def _type_of_image(ctx: RequestContext, image: Image | None) -> VolumeTypeRow | None:
    """Return the type that an image names; None: none, or none that the caller sees."""
    name = image.metadata.get(_TYPE_PROPERTY) if image else None
    if not name:
        return None
    try:
        return lookup.get_by_id_or_name(ctx, name)
    except exception.VolumeTypeNotFound:
        return None


def requested_size(requested: CreateRequest, source: Source | None) -> int:
    """Return the requested size in GiB, or that of the source.

    :raises InvalidInput: there is none, or the source does not fit into it
    """
    size = requested.get("size")
    if size is not None:
        gib = int(size)
        if source is not None and gib < source.size_gib:
            raise exception.InvalidInput(
                field="volume.size",
                value=gib,
                reason=f"It must be at least that of {_describe(source)}, {source.size_gib} GiB.",
            )
        return gib
    if source is None:
        raise exception.InvalidInput(
            field="volume.size", value=None, reason="A size of at least 1 GiB is required."
        )
    return int(source.size_gib)


def select_destination(
    source: Source | None, size_gib: int, specs: Mapping[str, str | None], zone: str | None = None
) -> scheduler.Destination:
    """Return the best backend, or that of the source: the backend itself clones a volume.

    :param specs: the extra specs of the new volume's type
    :param zone: None if any will do
    :raises InvalidInput: another zone than that of the source is requested
    :raises NoValidBackend: with the reason
    """
    request_spec = scheduler.RequestSpec(size_gib, specs, zone)
    if source is None:
        return scheduler.select_backend(request_spec)
    if zone not in {None, source.availability_zone}:
        raise exception.InvalidInput(
            field="volume.availability_zone",
            value=zone,
            reason=f"It must be that of {_describe(source)}, {source.availability_zone}.",
        )
    return scheduler.select_on_host(source.host, request_spec)


def _describe(source: Source) -> str:
    return f"{'volume' if isinstance(source, Volume) else 'snapshot'} {source.id}"


MIN_SIZE: Final = "provisioning:min_vol_size"
MAX_SIZE: Final = "provisioning:max_vol_size"
"""Extra specs with the smallest and the largest size, in GiB."""


def check_size(volume_type: Mapping[str, Any] | None, size_gib: int) -> None:
    """Check that a type allows a size.

    :param volume_type: the type's row; None: no type
    :raises InvalidInput: with the limit
    """
    specs = volume_type["extra_specs"] if volume_type else {}
    minimum, maximum = _parse_gib(specs.get(MIN_SIZE)), _parse_gib(specs.get(MAX_SIZE))
    if minimum is not None and size_gib < minimum:
        raise _out_of_range(volume_type, size_gib, f"at least {minimum}")
    if maximum is not None and size_gib > maximum:
        raise _out_of_range(volume_type, size_gib, f"at most {maximum}")


def _parse_gib(text: str | None) -> int | None:
    """Return a limit; a value that is not a number limits nothing."""
    return int(text) if text and text.isascii() and text.isdecimal() else None


def _out_of_range(
    volume_type: Mapping[str, Any] | None, size_gib: int, limit: str
) -> exception.InvalidInput:
    name = volume_type["name"] if volume_type else None
    return exception.InvalidInput(
        field="size",
        value=size_gib,
        reason=f"The volume type {name} allows {limit} GiB.",
    )

# SPDX-License-Identifier: Apache-2.0
"""Requests to the managers to create, delete, extend, manage and unmanage volumes.

Each row records the pending work before the message is sent, so a manager that is down finds it
later.  If the message cannot be sent, the row records the failure: no volume waits indefinitely.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
import contextlib
from typing import Any, NamedTuple

from attachd import exception
from attachd.api import idempotency, scheduler
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import messages, quotas
from attachd.db.volumes import volume_store, volume_updates
from attachd.images.glance import Image
from attachd.objects import Volume
from attachd.rpc import manager_api
from attachd.states import Event, VolumeState


def create(ctx: RequestContext, values: Mapping[str, Any]) -> Volume:
    """Store a volume and have it created, or managed.

    :param values: with the state ``managing`` for a volume that is made of an object
    :raises Unavailable: the message could not be sent; the volume is in error
    """
    volume = Volume.create(ctx, values)
    _report_no_backend(ctx, volume)
    is_new = volume.state == VolumeState.CREATING
    try:
        _request_new(ctx, volume)
    except exception.AttachdError as error:
        failed = Event.CREATE_FAILED if is_new else Event.MANAGE_FAILED
        if _revert_if_unsent(volume, failed, error=str(error), provider={}):
            raise exception.Unavailable(
                reason=f"Volume {volume.id} was not created and is in error: {error} Delete it."
            ) from error
    return volume


def create_once(
    ctx: RequestContext,
    claim: idempotency.IdempotencyClaim,
    values: Callable[[], Mapping[str, Any]],
) -> Volume:
    """Store a volume and have it created, or continue with that of an earlier run of the request.

    :param claim: of the request's key
    :param values: of the volume, called only if there is none yet
    :raises Unavailable: the message could not be sent.  The volume stays as it is: a repeated
        request sends it again, and without one a manager creates the volume when it finds the row
    """
    volume = idempotency.find_created(claim, "volume", lambda: Volume.get(ctx, claim.resource_id))
    if volume is None:
        volume = Volume.create(ctx, values(), claim)
        claim.held = True
        _report_no_backend(ctx, volume)
    _request_new(ctx, volume)
    return volume


def _report_no_backend(ctx: RequestContext, volume: Volume) -> None:
    """Store a message to the user of a volume that no backend can serve."""
    if volume.host is None:
        place = (volume.id, volume.project_id)
        news = messages.NewMessage(*place, messages.SCHEDULE, messages.NO_BACKEND, ctx.request_id)
        messages.try_create(news, CONF.manager.message_ttl)


def _request_new(ctx: RequestContext, volume: Volume) -> None:
    """Request what a new volume still needs."""
    if volume.state == VolumeState.CREATING:
        manager_api.create_volume(ctx, volume)
    elif volume.state == VolumeState.MANAGING:
        manager_api.manage_volume(ctx, volume)


def replay_create(ctx: RequestContext, volume_id: str, kept: Any) -> Any:
    """Return the stored answer of :func:`create_once`, if the volume still exists."""
    idempotency.load_created(volume_id, "volume", lambda: Volume.get(ctx, volume_id))
    return kept


def delete(ctx: RequestContext, volume: Volume, *, cascade: bool = False) -> None:
    """Mark a volume and have it deleted.

    :param cascade: whether its snapshots are deleted with it
    :raises InvalidTransition: its state does not allow deletion
    :raises InvalidVolume: it has attachments, or snapshots without ``cascade``
    :raises Unavailable: the message could not be sent; the volume is in ``error_deleting``
    :raises BackendFrozen: its backend is frozen
    """
    scheduler.check_not_frozen(volume.host)
    if volume.state == VolumeState.ERROR_MANAGING:
        unmanage(ctx, volume)  # It has no data of its own.
        return
    if volume.host is None:
        volume_store.delete_without_backend(volume.id)
        return
    if cascade:
        volume.delete_with_snapshots()
    else:
        volume.fire(Event.DELETE)
    try:
        manager_api.delete_volume(ctx, volume)
    except exception.AttachdError as error:
        if _revert_if_unsent(volume, Event.DELETE_FAILED, error=str(error)):
            raise


def unmanage(ctx: RequestContext, volume: Volume) -> None:
    """Mark a volume and have it removed without its data.

    :raises NoValidBackend: its backend reports that it cannot do this
    :raises InvalidTransition: its state does not allow it
    :raises InvalidVolume: it has attachments, or is being cloned
    :raises Unavailable: the message could not be sent; the volume is in ``error_unmanaging``
    """
    scheduler.check_manage_existing(volume.host)
    volume.fire(Event.UNMANAGE)
    try:
        manager_api.unmanage_volume(ctx, volume)
    except exception.AttachdError as error:
        if _revert_if_unsent(volume, Event.UNMANAGE_FAILED, error=str(error)):
            raise


def extend(ctx: RequestContext, volume: Volume, size_gib: int) -> None:
    """Mark a volume and have it extended.

    :raises InvalidTransition: its state does not allow extending
    :raises QuotaExceeded: the quota of its project is exceeded
    :raises NoValidBackend: its backend lacks the capacity, or cannot extend while hosts use it
    :raises Unavailable: the message could not be sent; the volume is unchanged
    :raises BackendFrozen: its backend is frozen
    """
    scheduler.check_not_frozen(volume.host)
    claim = quotas.deltas_of_extend(volume.volume_type_id, volume.size_gib, size_gib)
    with quota_error_first(volume.project_id, claim):
        scheduler.check_free_capacity(volume.host, size_gib - volume.size_gib)
        if volume.status == "in-use":
            scheduler.check_online_extend(volume.host)
    volume.extend(size_gib)
    try:
        manager_api.extend_volume(ctx, volume)
    except exception.AttachdError:
        if _revert_if_unsent(volume, Event.EXTENDED, new_size_gib=None):
            raise


def revert(ctx: RequestContext, volume: Volume, snapshot_id: str) -> None:
    """Mark a volume and its latest snapshot, and have the volume reverted to it.

    :raises NoValidBackend: its backend has no snapshots
    :raises InvalidVolume: its status does not allow it
    :raises InvalidSnapshot: the snapshot is not its latest one, or not available
    :raises InvalidTransition: the snapshot is in use
    :raises Unavailable: the message could not be sent; the volume is unchanged
    :raises BackendFrozen: its backend is frozen
    """
    scheduler.check_not_frozen(volume.host)
    scheduler.check_snapshots(volume.host)
    volume.revert(snapshot_id)
    try:
        manager_api.revert_volume(ctx, volume)
    except exception.AttachdError:
        if _revert_if_unsent(volume, Event.REVERTED):
            raise


def reimage(ctx: RequestContext, volume: Volume, image: Image, statuses: Collection[str]) -> None:
    """Mark a volume and have an image written to it.

    :raises InvalidTransition: its status is not one of ``statuses``
    :raises Conflict: it has several attachments
    :raises Unavailable: the message could not be sent; the volume is in error
    :raises BackendFrozen: its backend is frozen
    """
    scheduler.check_not_frozen(volume.host)
    volume.begin_reimage(image.id, image.metadata, statuses)
    try:
        manager_api.reimage_volume(ctx, volume)
    except exception.AttachdError as error:
        if _revert_if_unsent(volume, Event.REIMAGE_FAILED, error=str(error)):
            raise


class NewImage(NamedTuple):
    """An image that a volume is to be sent to.

    :ivar create: makes it, without data
    :ivar discard: deletes it, unless it has all its data; returns whether there is none
    """

    id: str
    create: Callable[[], object]
    discard: Callable[[], bool]


def upload(ctx: RequestContext, volume: Volume, image: NewImage) -> None:
    """Mark a volume, make an image, and have the volume sent to it.

    :raises: what ``image.create`` raises; the volume is as it was, or will be when it is certain
        that there is no image
    :raises InvalidTransition: it is not available
    :raises Conflict: the image was made too late, and is deleted
    :raises Unavailable: the message could not be sent; a manager goes on when it finds the row
    """
    volume.begin_upload(image.id)
    _make_image(volume, image, volume.cancel_upload)
    manager_api.upload_volume(ctx, volume)


def upload_in_use(ctx: RequestContext, volume: Volume, image: NewImage) -> None:
    """Do the same with a volume in use, of which a manager takes a snapshot.

    :raises NoValidBackend: its backend reports that it cannot do this
    :raises InvalidTransition: it is not in use
    :raises Conflict, Unavailable: as :func:`upload`
    """
    scheduler.check_read_snapshots(volume.host)
    volume.begin_upload_in_use(image.id)
    _make_image(volume, image, volume.cancel_upload_in_use)
    manager_api.upload_volume(ctx, volume)


def _make_image(volume: Volume, image: NewImage, cancel: Callable[[str], None]) -> None:
    """Make the image of an upload that is stored.

    A manager that finds no image for a long time stores that the upload has failed, and deletes
    the image then: either it finds this one, or this function finds the failure.
    """
    try:
        image.create()
    except exception.ImageRequestUnanswered as error:
        # A manager deletes the image, which may still be made.
        volume_updates.fail_upload(volume.id, image.id, str(error))
        raise
    except exception.AttachdError:
        with contextlib.suppress(exception.InvalidTransition, exception.NotFound):
            cancel(image.id)
        raise
    is_expected = volume_updates.is_upload_expected(volume.id, image.id)
    if not is_expected and image.discard():
        raise exception.Conflict(
            reason=f"Volume {volume.id} was not uploaded: the Image service took too long to make "
            "the image, or the status of the volume was reset. Upload it again."
        )


def _revert_if_unsent(volume: Volume, event: Event, **values: Any) -> bool:
    """Record that a message was not sent; return whether that was still possible.

    The message may have arrived all the same, or a manager has found the row by itself.
    """
    try:
        volume.fire(event, **values)
    except (exception.InvalidTransition, exception.NotFound):
        return False
    return True


@contextlib.contextmanager
def quota_error_first(project_id: str, claim: quotas.Deltas) -> Iterator[None]:
    """Prefer QuotaExceeded to NoValidBackend while a backend is selected.

    The quota itself is enforced later, when the volume is stored.

    :raises QuotaExceeded: no backend fits, and the project's quota is exceeded
    """
    try:
        yield
    except exception.NoValidBackend:
        quotas.check(project_id, claim)
        raise

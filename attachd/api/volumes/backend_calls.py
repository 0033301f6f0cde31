# SPDX-License-Identifier: Apache-2.0
"""Hands volumes to their backends; used by the handlers of volumes and actions.

Each row says what is due before the message is sent, so that a manager which is away finds it.
Where the message cannot even be sent, the row says so: nothing waits for ever.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attachd import exception, scheduler
from attachd.api import idempotency
from attachd.api.quotas import claims
from attachd.context import RequestContext
from attachd.db import quota_claims
from attachd.objects import Volume
from attachd.rpc import manager_api
from attachd.states import Event, VolumeState


def create(ctx: RequestContext, values: Mapping[str, Any]) -> Volume:
    """Store a volume and have it made.

    :raises Unavailable: it is in error, because the message could not be sent
    """
    volume = Volume.create(ctx, values)
    try:
        manager_api.create_volume(ctx, volume)
    except exception.AttachdError as error:
        if _revert_if_unsent(volume, Event.CREATE_FAILED, error=str(error)):
            raise exception.Unavailable(
                reason=f"Volume {volume.id} was not created and is in error: {error} Delete it."
            ) from error
    return volume


def create_once(
    ctx: RequestContext,
    claim: idempotency.IdempotencyClaim,
    values: Callable[[], Mapping[str, Any]],
) -> Volume:
    """Store a volume and have it made, or have that made which an earlier run has stored.

    :param idempotency_claim: of the key that it is made for
    :param values: of the volume, asked for only if there is none yet
    :raises Unavailable: the message could not be sent.  The volume stays as it is: a repetition
        sends it again, and without one a manager makes the volume when it finds the row
    """
    volume = idempotency.find_created(claim, "volume", lambda: Volume.get(ctx, claim.resource_id))
    if volume is None:
        volume = Volume.create(ctx, values(), claim)
        claim.held = True
    if volume.state == VolumeState.CREATING:
        manager_api.create_volume(ctx, volume)
    return volume


def replay_create(ctx: RequestContext, volume_id: str, kept: Any) -> Any:
    """Answer what :func:`create_once` was answered with, as long as the volume is there."""
    idempotency.load_created(volume_id, "volume", lambda: Volume.get(ctx, volume_id))
    return kept


def delete(ctx: RequestContext, volume: Volume) -> None:
    """Mark a volume and have it removed.

    :raises InvalidTransition: it is in no state to be deleted
    :raises InvalidVolume: it has attachments
    :raises Unavailable: it is in ``error_deleting``, because the message could not be sent
    :raises BackendFrozen: its backend deletes nothing at present
    """
    scheduler.check_not_frozen(volume.host)
    volume.fire(Event.DELETE)
    try:
        manager_api.delete_volume(ctx, volume)
    except exception.AttachdError as error:
        if _revert_if_unsent(volume, Event.DELETE_FAILED, error=str(error)):
            raise


def extend(ctx: RequestContext, volume: Volume, size_gib: int) -> None:
    """Mark a volume and have it grow.

    :raises InvalidTransition: it is in no state to grow
    :raises QuotaExceeded: its project may not have that much
    :raises NoValidBackend: its backend has no room for it
    :raises Unavailable: it is as it was, because the message could not be sent
    :raises BackendFrozen: its backend extends nothing at present
    """
    scheduler.check_not_frozen(volume.host)
    claim = quota_claims.of_growth(volume.volume_type_id, volume.size_gib, size_gib)
    with claims.quota_error_first(volume.project_id, claim):
        scheduler.check_free_capacity(volume.host, size_gib - volume.size_gib)
    volume.extend(size_gib)
    try:
        manager_api.extend_volume(ctx, volume)
    except exception.AttachdError:
        if _revert_if_unsent(volume, Event.EXTENDED, new_size_gib=None):
            raise


def _revert_if_unsent(volume: Volume, event: Event, **values: Any) -> bool:
    """Tell whether nobody will do what a message that failed was about.

    It may have arrived all the same, or a manager have found the row by itself.
    """
    try:
        volume.fire(event, **values)
    except (exception.InvalidTransition, exception.NotFound):
        return False
    return True

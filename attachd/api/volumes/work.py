# SPDX-License-Identifier: Apache-2.0
"""Hands volumes to their backends; used by the handlers of volumes and actions.

Each row says what is due before the message is sent, so that a manager which is away finds it.
Where the message cannot even be sent, the row says so: nothing waits for ever.
"""

from collections.abc import Mapping
import contextlib
from typing import Any

from attachd import exception, placement, rpcapi
from attachd.api.quotas import claims
from attachd.context import RequestContext
from attachd.db import quota_claims
from attachd.objects import Volume
from attachd.states import Event


def create(ctx: RequestContext, values: Mapping[str, Any]) -> Volume:
    """Store a volume and have it made.

    :raises Unavailable: it is in error, because the message could not be sent
    """
    volume = Volume.create(ctx, values)
    try:
        rpcapi.create_volume(ctx, volume)
    except exception.AttachdError as error:
        _give_up(volume, Event.CREATE_FAILED, error=str(error))
        raise exception.Unavailable(
            reason=f"Volume {volume.id} was not created and is in error: {error} Delete it."
        ) from error
    return volume


def delete(ctx: RequestContext, volume: Volume) -> None:
    """Mark a volume and have it removed.

    :raises InvalidTransition: it is in no state to be deleted
    :raises InvalidVolume: it has attachments
    :raises Unavailable: it is in ``error_deleting``, because the message could not be sent
    :raises BackendFrozen: its backend deletes nothing at present
    """
    placement.check_not_frozen(volume.host)
    volume.fire(Event.DELETE)
    try:
        rpcapi.delete_volume(ctx, volume)
    except exception.AttachdError as error:
        _give_up(volume, Event.DELETE_FAILED, error=str(error))
        raise


def extend(ctx: RequestContext, volume: Volume, size_gib: int) -> None:
    """Mark a volume and have it grow.

    :raises InvalidTransition: it is in no state to grow
    :raises QuotaExceeded: its project may not have that much
    :raises NoBackendFits: its backend has no room for it
    :raises Unavailable: it is as it was, because the message could not be sent
    :raises BackendFrozen: its backend extends nothing at present
    """
    placement.check_not_frozen(volume.host)
    claim = quota_claims.of_growth(volume.volume_type_id, volume.size_gib, size_gib)
    with claims.told_first(volume.project_id, claim):
        placement.check_room(volume.host, size_gib - volume.size_gib)
    volume.extend(size_gib)
    try:
        rpcapi.extend_volume(ctx, volume)
    except exception.AttachdError:
        _give_up(volume, Event.EXTENDED, new_size_gib=None)
        raise


def _give_up(volume: Volume, event: Event, **values: Any) -> None:
    # The message may have been sent after all, and its work be done.
    with contextlib.suppress(exception.InvalidTransition, exception.NotFound):
        volume.fire(event, **values)

# SPDX-License-Identifier: Apache-2.0
"""Deletion of volumes, which goes on in attachd when the caller has given up."""

import http

from attachd.platforms import waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError
from attachd.platforms.storage import Storage, StoredVolume


def delete(storage: Storage, volume_id: str) -> None:
    """Delete a volume, and wait until it is gone; one that is gone is a success.

    :raises CallError: UNAVAILABLE: it could not be deleted; ABORTED: the caller does not wait so
        long; or as the API refuses it
    """
    volume = storage.volume(volume_id)
    if volume is not None and volume.status != "deleting":
        volume = _request(storage, volume)
    if volume is not None:
        volume = waiting.wait_while(storage, volume, {"deleting"}, "being deleted")
    if volume is not None:
        reason = storage.find_failure(volume.id)
        raise CallError(
            ErrorCode.UNAVAILABLE,
            f"Volume {volume.id} could not be deleted, and is {volume.status}: {reason}",
        )


def _request(storage: Storage, volume: StoredVolume) -> StoredVolume | None:
    """Have a volume deleted; return it as it is then, or None if it is gone."""
    try:
        storage.delete_volume(volume.id)
    except StorageError as error:
        if error.status != http.HTTPStatus.NOT_FOUND:
            raise
    return storage.volume(volume.id)

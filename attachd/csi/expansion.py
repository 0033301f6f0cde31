# SPDX-License-Identifier: Apache-2.0
"""Growth of volumes, which goes on in attachd when the caller has given up."""

from typing import Final

from attachd.csi.new_volume import SizeRange
from attachd.platforms import waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError, is_about_size
from attachd.platforms.storage import Storage, StoredVolume

_EXTENDING: Final = frozenset({"extending"})
_READY: Final = frozenset({"available", "in-use"})


def expand(storage: Storage, volume: StoredVolume, sizes: SizeRange) -> StoredVolume:
    """Extend a volume unless it has the size, and wait until it has.

    :raises CallError: ABORTED: it is being extended, or other work prevents it; OUT_OF_RANGE;
        FAILED_PRECONDITION: its backend extends no volume that nodes have
    """
    size_gib = sizes.choose_gib(volume.size_gib)
    current = _wait(storage, volume)
    if current.size_gib >= size_gib:
        return current
    if current.status not in _READY:
        raise waiting.aborted(f"Volume {volume.id} is in status {current.status}")
    try:
        storage.extend_volume(volume.id, size_gib)
    except StorageError as error:
        raise _refused(current, error) from error
    grown = _read(storage, volume)
    grown = _wait(storage, grown)
    if grown.size_gib < size_gib:
        reason = storage.volumes.find_failure(volume.id)
        raise CallError(
            ErrorCode.UNAVAILABLE,
            f"Volume {volume.id} did not grow to {size_gib} GiB, and is {grown.status}: {reason}",
        )
    return grown


def _wait(storage: Storage, volume: StoredVolume) -> StoredVolume:
    current = waiting.wait_while(storage.volumes, volume, _EXTENDING, "being extended")
    if current is None:
        raise _gone(volume)
    return current


def _read(storage: Storage, volume: StoredVolume) -> StoredVolume:
    current = storage.volumes.get(volume.id)
    if current is None:
        raise _gone(volume)
    return current


def _gone(volume: StoredVolume) -> CallError:
    return CallError(ErrorCode.NOT_FOUND, f"Volume {volume.id} was deleted.")


def _refused(volume: StoredVolume, error: StorageError) -> CallError:
    if is_about_size(error):
        return CallError(ErrorCode.OUT_OF_RANGE, f"{error}")
    if error.reason == "no_valid_backend" and "online_extend" in f"{error}":
        return CallError(
            ErrorCode.FAILED_PRECONDITION,
            f"Volume {volume.id} is published, and its backend extends only volumes that are not.",
        )
    if error.reason == "invalid_volume":  # Another call was faster.
        return waiting.aborted(f"{error}".removesuffix("."))
    return error

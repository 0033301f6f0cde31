# SPDX-License-Identifier: Apache-2.0
"""The claim of attachd-csi to a volume that it publishes: Docker does not have it as well.

The plugin for Docker detaches what no container of its host uses.  Of the two at the same time at
least one sees the other: each writes its key first, and then reads that of the other one.
"""

from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.storage import DOCKER_KEY, PUBLISHED_KEY, Storage, StoredVolume


def claim(storage: Storage, volume: StoredVolume) -> None:
    """Store that attachd-csi has a volume, unless it has created it.

    :raises CallError: FAILED_PRECONDITION: Docker has it; NOT_FOUND: it has gone
    """
    _check(volume)
    if volume.csi_key is not None:
        return
    storage.volumes.add_metadata(volume.id, {PUBLISHED_KEY: "true"})
    current = storage.volumes.get(volume.id)
    if current is None:
        raise CallError(ErrorCode.NOT_FOUND, f"There is no volume {volume.id}.")
    _check(current)


def _check(volume: StoredVolume) -> None:
    if DOCKER_KEY in volume.metadata:
        name = volume.metadata[DOCKER_KEY]
        raise CallError(
            ErrorCode.FAILED_PRECONDITION,
            f"Docker has volume {volume.id} as {name} (metadata {DOCKER_KEY}), and would detach "
            "it. Delete the metadata with the prefix docker. of the volume first.",
        )

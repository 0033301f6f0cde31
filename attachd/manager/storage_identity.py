# SPDX-License-Identifier: Apache-2.0
"""Whether a backend serves the storage that its volumes are on.

A manager with a copied configuration, or in front of an empty disk, would take a volume that is
missing for one without exports, and its hosts for hosts without access.
"""

from collections.abc import Mapping

from attachd import exception
from attachd.db.cluster import storages
from attachd.drivers.base import Driver, VolumeRef


def check(backend: str, driver: Driver) -> None:
    """Store what a backend serves, if it serves it for the first time, or compare it.

    :param backend: ``host@backend``
    :param driver: set up
    :raises BackendError: it serves other storage
    """
    present = dict(driver.storage_ids)
    if not present:
        return
    changes = find_changes(storages.claim(backend, present), present)
    if changes:
        raise exception.BackendError(
            f"It serves other storage than its volumes are on: {'; '.join(changes)}. Correct the "
            "configuration, or its host name if it was copied. If this is the storage, such as "
            f"after a restore from a backup: attachd-manage storage accept {driver.name}",
            final=True,
        )


def check_has_volume(driver: Driver, volume: VolumeRef, attachment_id: str) -> None:
    """Check that a volume is there before the access of a host is taken for ended.

    :raises BackendError: it is missing, and may be on other storage, where the host has access
    """
    if not driver.has_volume(volume):
        raise exception.BackendError(
            f"Backend {driver.name} has no volume {volume.id}: it may be on other storage, where "
            f"its hosts still have access. If it is lost, delete attachment {attachment_id} by "
            "force."
        )


def find_changes(known: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return a clause for each pool whose storage is another one."""
    return [
        f"pool {pool} was {known[pool]} and is {storage_id}"
        for pool, storage_id in present.items()
        if known.get(pool, storage_id) != storage_id
    ]

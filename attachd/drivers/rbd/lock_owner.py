# SPDX-License-Identifier: Apache-2.0
"""Owners of the lock of an image that died; for the rbd driver.

The lock is in the header, where a host can name any client of the cluster.
"""

from collections.abc import Callable, Collection

from attachd import exception
from attachd.ceph import image_header
from attachd.drivers import base
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.images import Images


def end_dead(
    cluster: Cluster, images: Images, volume_id: str, list_own: Callable[[], Collection[str]]
) -> None:
    """End the owner of the lock of an image if it has died or hangs, and take the lock from it.

    librbd would blocklist the address that the lock names, whosever it is.

    :param list_own: returns the users of the image, and that of the program that extends it
    :raises BackendError: the lock names a client of another image
    """
    owner = images.lock_owner(volume_id)
    if owner is None or any(
        watch.client_id == owner.client_id for watch in images.watches(volume_id)
    ):
        return
    sessions = cluster.sessions()
    if owner != images.lock_owner(volume_id):
        return
    own = list_own()
    for session in sessions:
        has_id, has_address = (
            session.client_id == owner.client_id,
            owner.address in session.addresses,
        )
        is_own = has_id and has_address and session.entity in own
        if (has_id or has_address) and not is_own:
            raise exception.BackendError(
                f"Volume {volume_id}: the lock of its image was changed by a host: it names the "
                f"client {owner.address} of another user. Detach the volume from all hosts."
            )
    cluster.blocklist(owner.address)
    if image := images.find(volume_id):
        with images.open_pool() as pool, images.errors(f"Image {image.name} stays locked"):
            base.check_still_owner()
            image_header.break_lock(pool, image.id, owner.client_id, owner.cookie)

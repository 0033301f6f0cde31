# SPDX-License-Identifier: Apache-2.0
"""The check of an RBD image's header before this host opens the image.

Each host with a key of an image can write its header, which says where the data is.  The manager
stores the header while no host has access, and the connection has what is stored.  A host can
change the header after the check as well: so QEMU also runs in a sandbox, and the kernel refuses
images whose data is elsewhere.
"""

from collections.abc import Iterator
import contextlib
from typing import Any, Final

from attachd import exception
from attachd.agent.connectors.base import ConnectionInfo
from attachd.agent.connectors.qemu import blockdev
from attachd.ceph import bindings, image_header

PROTOCOL: Final = "rbd"

_TIMEOUT: Final = 30
"""Seconds that the cluster has for one request."""


def missing_requirements() -> list[str]:
    """List what the check needs and this host does not have."""
    if bindings.is_installed():
        return []
    return ["the Python modules of Ceph (packages python3-rados and python3-rbd)"]


def check(info: ConnectionInfo) -> None:
    """Compare the header of an image with what the manager has stored, with the host's key.

    :raises HostError: it differs, or cannot be read
    """
    name = info.get("name")
    try:
        stored = info["image"]
        with _pool(info) as pool:
            keys = image_header.read(pool, stored["id"])
        # The size is the manager's to check: the connection does not have it.
        changes = [*image_header.find_changes(stored, keys, [image_header.size(keys)])]
    except exception.BackendError as error:
        raise exception.HostError(reason=f"{error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise exception.HostError(
            reason=f"The connection does not say what the header of image {name} has to be. "
            "Detach the volume, and attach it again."
        ) from error
    if changes:
        raise exception.HostError(
            reason=f"The header of image {name} was changed by a host: "
            f"{', '.join(changes)[:200]}. It is not opened. Detach the volume from all hosts, and "
            "attach it again: then the header is written anew."
        )


@contextlib.contextmanager
def _pool(info: ConnectionInfo) -> Iterator[Any]:
    """Connect to the pool of an image with the key of its attachment."""
    path = blockdev.list_paths(info, "")[0]
    rados = bindings.load().rados
    settings = {
        "client_mount_timeout": f"{_TIMEOUT}",
        "rados_mon_op_timeout": f"{_TIMEOUT}",
        "rados_osd_op_timeout": f"{_TIMEOUT}",
        **blockdev.ceph_settings(info),
    }
    try:
        cluster = rados.Rados(
            name=f"client.{path.blockdev['user']}",
            conf=settings,
            conffile=path.blockdev.get("conf"),
        )
        try:
            cluster.connect()
            with cluster.open_ioctx(path.blockdev["pool"]) as pool:
                yield pool
        finally:
            cluster.shutdown()
    except rados.Error as error:
        raise exception.HostError(
            reason=f"The header of image {path.blockdev['image']} could not be read: {error}. "
            "Check that the cluster can be reached from this host, then repeat the command."
        ) from error

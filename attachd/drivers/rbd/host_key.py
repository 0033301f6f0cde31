# SPDX-License-Identifier: Apache-2.0
"""The key that compute hosts without an agent have, in a secret of libvirt; for the rbd driver.

It is one key for all volumes of a host.  Which attachment, or which host, a client by it belongs
to cannot be told.
"""

import time
from typing import Final

from oslo_config import cfg

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.image_clients import WATCH_TIMEOUT
from attachd.drivers.rbd.images import Images

OPTIONS: Final = (
    cfg.StrOpt(
        "rbd_secret_uuid",
        help="The UUID of a secret of libvirt that compute hosts without an agent have, with "
        "the key of rbd_libvirt_user. With it the backend promises less: such a host reaches "
        "all volumes that this user reaches, and cannot be fenced. None: Compute needs agents "
        "with [agent]libvirt_uri.",
    ),
    cfg.StrOpt(
        "rbd_libvirt_user",
        help="The cephx user of the secret rbd_secret_uuid, without 'client.'. None: there is no "
        "such secret.",
    ),
)
_POLL_INTERVAL: Final = 0.2
_USER: Final = "user"
"""The key of the provider secrets with the name of the user, also if options change."""


class HostKey:
    """The key, if options name one."""

    def __init__(self, cluster: Cluster, options: cfg.ConfigOpts.GroupAttr) -> None:
        self._cluster = cluster
        self._options = options

    def is_configured(self) -> bool:
        """Return whether options name the secret and the user."""
        return bool(self._options.rbd_secret_uuid and self._options.rbd_libvirt_user)

    def check(self) -> None:
        """Check the options; raises BackendError, final=True."""
        if bool(self._options.rbd_secret_uuid) != bool(self._options.rbd_libvirt_user):
            raise exception.BackendError(
                "rbd_secret_uuid and rbd_libvirt_user need each other: set both, or none.",
                final=True,
            )

    def connect(self, info: base.ConnectionInfo) -> base.WithSecrets[base.ConnectionInfo]:
        """Return a connection that names the secret, and the user for the revoke.

        :raises BackendError: final=True: there is no such key, or the access is read-only
        """
        if not self.is_configured() or info["data"]["access_mode"] == "ro":
            raise exception.BackendError(
                "The key of hosts (rbd_secret_uuid) is not configured, or cannot be read-only.",
                final=True,
            )
        user = self._options.rbd_libvirt_user
        names = {"auth_username": user, "secret_uuid": self._options.rbd_secret_uuid}
        answer: base.ConnectionInfo = {**info, "data": {**info["data"], **names}}
        return base.WithSecrets(answer, {_USER: user})

    def get_user(self, export: base.Export) -> str:
        """Return the user of a connection, as "client.NAME"."""
        return f"client.{export.provider_secrets.get(_USER, self._options.rbd_libvirt_user)}"

    def wait_until_ended(self, images: Images, volume_id: str, user: str, staying: int) -> None:
        """Wait until no more clients of a user have an image open than attachments stay.

        Each attachment has one client, and none can be ended: it may be that of another one.

        :raises BackendError: one stays
        """
        deadline = time.monotonic() + WATCH_TIMEOUT
        while (number := self._count_clients(images, volume_id, user)) > staying:
            if time.monotonic() > deadline:
                raise exception.BackendError(
                    f"Volume {volume_id}: {number} clients of {user} have its image open, and "
                    f"{staying} attachments by the key of hosts are left. Detach it from its "
                    "server, or turn the host off."
                )
            time.sleep(_POLL_INTERVAL)

    def _count_clients(self, images: Images, volume_id: str, user: str) -> int:
        """Count the clients that have an image open, of a user or an unknown one."""
        owners = {it.client_id: it.entity for it in self._cluster.sessions()}
        return sum(owners.get(it.client_id, user) == user for it in images.watches(volume_id))

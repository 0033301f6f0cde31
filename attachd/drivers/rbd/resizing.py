# SPDX-License-Identifier: Apache-2.0
"""Extends images that hosts may have open, in a process of its own; for the rbd driver.

librbd asks the client that has the lock of the image, so it has to open the image.  A host can
change the header after it was compared, and before librbd reads it.  So this happens in a
program without files (resize_worker.py), as a cephx user that reaches headers and object maps, but
no data.
"""

import errno
import json
import os
import subprocess
import sys
from typing import Any, Final

from oslo_config import cfg

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd import resize_worker
from attachd.drivers.rbd.cluster import Cluster, connection_settings, describe_health
from attachd.drivers.rbd.users import Capabilities, Naming, as_arguments

OBJECT_BYTES: Final = 4 * 2**20
"""The size of data objects, by default."""
MAX_BYTES: Final = 256_000_000 * OBJECT_BYTES
"""The largest image with an object map.  Source: cls/rbd/cls_rbd_types.h."""
START_TIMEOUT: Final = 15.0
"""Seconds for the start of the program, beside the time that the cluster has."""


class Resizing:
    """Extends the images of a backend.

    :ivar entity: the cephx user of the program
    """

    def __init__(
        self, cluster: Cluster, naming: Naming, options: cfg.ConfigOpts.GroupAttr
    ) -> None:
        self._cluster = cluster
        self._naming = naming
        self._options = options
        self.entity = naming.headers_entity

    def extend(self, pool: str, name: str, size_bytes: int) -> None:
        """Extend an image, unless it has that size.

        :raises BackendError: final=True if it would be too large
        """
        doing = f"Image {name} could not be extended"
        settings = {**connection_settings(self._options), "key": self._get_key(), "keyring": ""}
        request = resize_worker.Request(
            entity=self.entity,
            conf=self._options.rbd_ceph_conf,
            settings=settings,
            ports=_ports(self._cluster),
            pool=pool,
            name=name,
            size=size_bytes,
        )
        answer = self._run(request, doing)
        if answer and answer["errno"] in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise exception.BackendError(
                f"{doing}: its header or its lock leads to what {self.entity} may not use, so a "
                f"host has changed it: {answer['error']}. Detach the volume from all hosts."
            )
        if answer and answer["errno"] == errno.EINVAL:
            check_size(name, size_bytes)
        if answer:
            code = answer["errno"]
            causes = describe_health(self._cluster) if code == errno.ETIMEDOUT else ""
            raise self._cluster.error(doing, code, f"{answer['error']}{causes}")

    def _get_key(self) -> str:
        """Return the key of the user, which has no rights to data."""
        caps = as_arguments(capabilities(self._naming))
        key = self._cluster.create_user(self.entity, caps)
        if key is None:
            self._cluster.set_capabilities(self.entity, caps)
            key = self._cluster.create_user(self.entity, caps)
        if key is None:
            raise exception.BackendError(f"User {self.entity} does not keep its capabilities.")
        return key

    def _run(self, request: resize_worker.Request, doing: str) -> dict[str, Any]:
        """Run the program; returns its answer."""
        base.check_still_owner()
        try:
            ended = subprocess.run(  # noqa: S603 (a list of arguments, no shell)
                [sys.executable, "-P", "-m", resize_worker.__name__],
                input=json.dumps(request).encode(),
                capture_output=True,
                check=False,
                timeout=self._options.rbd_timeout + START_TIMEOUT,
                pass_fds=base.liveness_fds(),
                process_group=0,
                env={"PATH": os.defpath, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired as error:
            # Clients that have the image open take part.
            causes = describe_health(self._cluster)
            raise exception.BackendUnreachable(
                f"{doing}: the cluster, or a host that has it open, did not answer in time"
                f"{causes}."
            ) from error
        try:
            answer: dict[str, Any] = json.loads(ended.stdout)
        except ValueError as error:
            lines = ended.stderr.decode(errors="replace").split("\n")
            reason = next((line for line in reversed(lines) if line), f"exit {ended.returncode}")
            raise exception.BackendError(f"{doing}: {reason}") from error
        return answer


def check_size(name: str, size_bytes: int) -> None:
    """Refuse the size of an image that Ceph has refused because it is too large."""
    size, largest = size_bytes // 2**30, MAX_BYTES // 2**30
    if size > largest:
        raise exception.BackendError(
            f"Image {name} cannot have {size} GiB: Ceph permits {largest} GiB.", final=True
        )


def _ports(cluster: Cluster) -> list[int]:
    """Return the TCP ports of all monitors and OSDs, which a client connects to."""
    daemons = (*cluster.read("mon dump")["mons"], *cluster.read("osd dump")["osds"])
    addresses = [
        address["addr"] for daemon in daemons for address in daemon["public_addrs"]["addrvec"]
    ]
    # An OSD that never ran has port 0.
    return sorted({int(address.rpartition(":")[2]) for address in addresses} - {0})


def capabilities(naming: Naming) -> Capabilities:
    """Return the capabilities of the program: headers and object maps, and no data.

    It cannot blocklist the owner of a lock, which hosts write: see RbdDriver.extend().
    """
    own = [
        f"allow {rights} pool={pool} object_prefix {prefix}"
        for pool in naming.pools
        for rights, prefix in (
            ("r class-read", f"rbd_id.{naming.prefix}"),
            ("rwx", "rbd_header."),
            ("rwx", "rbd_object_map."),
            ("class-read", "rbd_children"),
            ("r class-read", "rbd_info"),
            ("r class-read", "rbd_mirroring"),
        )
    ]
    return {"mon": "allow r", "osd": ", ".join(own)}

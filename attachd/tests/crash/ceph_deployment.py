# SPDX-License-Identifier: Apache-2.0
"""A deployment on a Ceph cluster, and its calls: with images, and with hosts that have them open.

Processes of attachd are killed, and not the daemons of Ceph.
"""

from collections.abc import Iterable
from http import client as http
import subprocess
from typing import Any, Final
import unittest

from oslo_utils import units

from attachd.ceph.bindings import load
from attachd.tests.crash import attachment_calls, volume_calls
from attachd.tests.crash.calls import Call
from attachd.tests.crash.deployment import CrashDeployment
from attachd.tests.fixtures import ceph, ceph_consistency, initiators
from attachd.tests.fixtures.http_client import Request

_DATA: Final = b"data" * 1024


class CephDeployment(CrashDeployment):
    """API, managers, RabbitMQ and a database, with the cluster of the test process.

    :ivar cluster: with images whose names begin with ``prefix``
    :ivar host: opens images
    """

    BACKEND = "rbd"

    def _start_storage(self, test: unittest.TestCase) -> str:
        self.cluster, self.prefix = ceph.shared(test), ceph.new_prefix()
        self.cluster.require_statistics(test)
        self.host = initiators.RbdHost(test, "host")
        self.host.setUp()
        test.addCleanup(self.host.cleanUp)
        options = self.cluster.options(self.prefix).items()
        lines = [f"{name} = {value}" for name, value in options]
        return "\n".join(["[rbd]", "driver = rbd", *lines])

    def _storage_pid(self) -> int:
        return 0

    def differences(self) -> list[str]:
        """Return sentences about differences between rows, images, users and watches."""
        return ceph_consistency.compare_with_ceph(self.database, self.cluster, self.prefix)

    def image(self, name: str) -> tuple[str, int, bytes] | None:
        """Return id, size and first bytes of an image; None: there is none."""
        lib = load()
        with self.cluster.pool() as pool:
            try:
                with lib.rbd.Image(pool, name, read_only=True) as image:
                    return image.id(), image.size(), image.read(0, len(_DATA))
            except lib.rbd.ImageNotFound:
                return None

    def fill(self, name: str) -> tuple[str, int, bytes] | None:
        """Write to an image, and return it."""
        with self.cluster.open_image(name) as image:
            image.write(_DATA, 0)
        return self.image(name)

    def remove(self, name: str) -> None:
        """Remove an image, if there is one."""
        if self.image(name):
            with self.cluster.pool() as pool:
                load().rbd.RBD().remove(pool, name)


class _OnImages(Call):
    """A call on images.

    :ivar opened: the processes of hosts
    """

    deployment: CephDeployment

    def __init__(self, deployment: CephDeployment) -> None:
        super().__init__(deployment)
        self.opened: list[subprocess.Popen[str]] = []

    def _open(self, attachment: str) -> subprocess.Popen[str]:
        """Have a host open the volume of a connected attachment, and write to it."""
        shown = self._request_json("GET", f"/attachments/{attachment}")["attachment"]
        data: dict[str, Any] = shown["connection_info"]
        info: initiators.ConnectionInfo = {"driver_volume_type": "rbd", "data": data}
        self.opened.append(self.deployment.host.log_in(info))
        assert "wrote" in self._write(self.opened[-1])
        return self.opened[-1]

    @staticmethod
    def _write(process: subprocess.Popen[str]) -> str:
        return initiators.RbdHost.command(process, "write -f 0 512")

    def clean(self) -> None:
        """End the hosts after their attachments, which ends their watches."""
        super().clean()
        for process in self.opened:
            process.kill()
            process.wait()


class DetachOpen(_OnImages, attachment_calls.Detach):
    """DELETE /attachments/ID while the host has the image open."""

    def prepare(self) -> None:
        """Open the image."""
        super().prepare()
        self.process = self._open(self.attachment)

    def wrong(self) -> Iterable[str]:
        """The host has lost the image."""
        yield from super().wrong()
        if "failed" not in (printed := self._write(self.process)):
            yield f"the host goes on: {printed}"


class DetachBesideOpen(_OnImages, attachment_calls.DetachBesideAnother):
    """DELETE /attachments/ID while another host has the image open."""

    def prepare(self) -> None:
        """Open the image on the host that stays."""
        super().prepare()
        self.process = self._open(self.attachment)

    def wrong(self) -> Iterable[str]:
        """The other host goes on."""
        yield from super().wrong()
        if "wrote" not in (printed := self._write(self.process)):
            yield f"the other host has failed: {printed}"


class Manage(_OnImages, volume_calls.Create):
    """POST /manageable_volumes, of an image with data."""

    def prepare(self) -> None:
        """Have an image, which has to be extended."""
        super().prepare()
        services = self._request_json("GET", "/os-services?binary=cinder-volume")["services"]
        self.host = services[0]["host"]
        self.image = f"disk-{self.key}"
        self.deployment.cluster.create_image(self.image, units.Gi - units.Mi)
        self.before = self.deployment.fill(self.image)

    def request(self) -> Request:
        """Return the call."""
        wanted = {"host": self.host, "ref": {"source-name": self.image}, "name": self.name}
        return self._post("/manageable_volumes", {"volume": wanted})

    def wrong(self) -> Iterable[str]:
        """There is one volume of that name, it is the image, and the image is nothing else."""
        yield from super().wrong()
        assert self.before
        expected = (self.before[0], units.Gi, _DATA)
        for row in self.deployment.volumes_named(self.name):
            name = f"{self.deployment.prefix}{row['id']}"
            yield from self._differs("image", expected, self.deployment.image(name))
        left = self.deployment.cluster.objects(f"rbd_id.{self.image}")
        yield from self._differs("objects", [], left)

    def clean(self) -> None:
        """Remove an image that is none."""
        super().clean()
        self.deployment.remove(self.image)


class Unmanage(_OnImages):
    """The action os-unmanage."""

    ENDS = frozenset({http.ACCEPTED, http.NOT_FOUND, http.BAD_REQUEST})

    def prepare(self) -> None:
        """Have data on the volume."""
        super().prepare()
        self.before = self.deployment.fill(f"{self.deployment.prefix}{self.volume}")
        self.image = f"{self.deployment.prefix}unmanaged.{self.volume}"

    def request(self) -> Request:
        """Return the call."""
        return self._action("os-unmanage")

    def wrong(self) -> Iterable[str]:
        """The volume is gone, and its image is not."""
        yield from self._differs("volume", None, self._volume_row())
        yield from self._differs("image", self.before, self.deployment.image(self.image))

    def clean(self) -> None:
        """Remove the image as well."""
        super().clean()
        self.deployment.remove(self.image)


ATTACHMENT_CALLS = (
    attachment_calls.Connect,
    attachment_calls.ConnectBesideAnother,
    attachment_calls.Detach,
    DetachOpen,
    DetachBesideOpen,
)
VOLUME_CALLS = (
    volume_calls.Create,
    volume_calls.Copy,
    volume_calls.Delete,
    volume_calls.Extend,
    Manage,
    Unmanage,
)

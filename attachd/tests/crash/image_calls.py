# SPDX-License-Identifier: Apache-2.0
"""A deployment with an Image service, and its calls: volumes of images, and images of volumes.

Processes of attachd are killed, and not the Image service, which is a fake: it keeps what it has
received, and nothing of an interrupted upload.
"""

from collections.abc import Iterable
from http import client as http
from pathlib import Path
from typing import Any, Final
import unittest

from attachd.db.volumes import snapshot_store
from attachd.states import VolumeState
from attachd.tests.crash import volume_calls
from attachd.tests.crash.calls import Call
from attachd.tests.crash.deployment import CrashDeployment
from attachd.tests.fixtures import fake_glance, lifetime
from attachd.tests.fixtures.http_client import Request, Response
from attachd.tests.wait import wait_for, wait_until

_FORMER: Final = b"former " * 1024
_DATA: Final = b"data" * 1024 * 1024
_UPLOADED_AS: Final = "qcow2"

_TIMEOUTS: Final = "connect_timeout = 5\nread_timeout = 10\n"


class ImageDeployment(CrashDeployment):
    """API, managers, tgtd, RabbitMQ, a database and an Image service.

    :ivar glance: the Image service
    :ivar raw: the id of a raw image with _DATA
    :ivar converted: the id of a qcow2 image with the same data
    """

    def _start_storage(self, test: unittest.TestCase) -> str:
        self.glance = fake_glance.FakeGlance(test)
        self.raw = self.glance.add(_DATA)
        content = fake_glance.convert(test, _DATA)
        self.converted = self.glance.add(content, disk_format="qcow2")
        self.conversions = lifetime.temp_dir(test)
        settings = self.glance.settings(self.conversions)
        return f"{super()._start_storage(test)}\n{settings}{_TIMEOUTS}"

    def differences(self) -> list[str]:
        """Return sentences about targets and sessions, and about files of conversions."""
        left = [path.name for path in self.conversions.iterdir()]
        return [*super().differences(), *(f"a file of a conversion: {name}" for name in left)]


class CachingDeployment(ImageDeployment):
    """The same with an image cache."""

    def _start_storage(self, test: unittest.TestCase) -> str:
        return f"{super()._start_storage(test)}\n[{self.BACKEND}]\nimage_cache_enabled = true\n"


class _OfImage(Call):
    """A call after which a volume has the data of an image."""

    deployment: ImageDeployment

    def _data_differs(self, volume_id: str) -> Iterable[str]:
        path = Path(self._volumes_dir()) / volume_id
        with path.open("rb") as file:
            data = file.read(len(_DATA) + len(_FORMER))
        if data != _DATA + bytes(len(_FORMER)):
            yield f"volume {volume_id}: its data is not that of the image: {data[:16]!r}"


class CreateRaw(_OfImage, volume_calls.Create):
    """POST /volumes with a raw image."""

    def request(self) -> Request:
        """Return the call."""
        wanted = {"size": 1, "imageRef": self._image(), "name": self.name}
        return self._post("/volumes", {"volume": wanted})

    def _image(self) -> str:
        return self.deployment.raw

    def wrong(self) -> Iterable[str]:
        """There is one volume of that name, with the data."""
        yield from super().wrong()
        for row in self.deployment.volumes_named(self.name):
            yield from self._data_differs(row["id"])


class CreateConverted(CreateRaw):
    """POST /volumes with an image that has to be converted."""

    def _image(self) -> str:
        return self.deployment.converted


class CreateCached(CreateRaw):
    """The same with an image that is in no cache yet."""

    def prepare(self) -> None:
        """Have an image of its own, so that the call fills the cache."""
        super().prepare()
        self.image = self.deployment.glance.add(_DATA)

    def _image(self) -> str:
        return self.image

    def wrong(self) -> Iterable[str]:
        """There is no more than one entry, it is whole, and no volume keeps it."""
        yield from super().wrong()
        for row in self._entries():
            yield from self._differs("entry", VolumeState.READY, row["state"])
            yield from self._data_differs(row["id"])
        sources = [row["source_volid"] for row in self.deployment.volumes_named(self.name)]
        yield from self._differs("sources", [None], sources)

    def clean(self) -> None:
        """Remove the entry, too."""
        super().clean()
        for row in self._entries():
            self.volume = row["id"]
            Call.clean(self)

    def _entries(self) -> list[dict[str, Any]]:
        return self.deployment.volumes_named(f"image-{self.image}")


class Reimage(_OfImage):
    """The action os-reimage."""

    ENDS = frozenset({http.ACCEPTED, http.BAD_REQUEST})
    """A volume that gets an image cannot get another one."""

    def prepare(self) -> None:
        """Have other data on the volume."""
        super().prepare()
        with (self._volumes_dir() / self.volume).open("r+b") as file:
            file.write(_FORMER)
            file.seek(len(_DATA))
            file.write(_FORMER)

    def request(self) -> Request:
        """Return the call."""
        body = {"os-reimage": {"image_id": self.deployment.raw}}
        version = {"OpenStack-API-Version": "volume 3.68"}
        return Request("POST", f"/volumes/{self.volume}/action", body, version)

    def wrong(self) -> Iterable[str]:
        """It has the data of the image, and can be used."""
        yield from self._status_differs("available")
        yield from self._data_differs(self.volume)


class Upload(Call):
    """The action os-volume_upload_image."""

    ENDS = frozenset({http.ACCEPTED})
    deployment: ImageDeployment

    def request(self) -> Request:
        """Return the call."""
        body = {"image_name": self.key, "disk_format": _UPLOADED_AS}
        return self._action("os-volume_upload_image", body)

    def repeat(self) -> Response:
        """Make the call again, until the volume is not being uploaded any more."""
        request = self.request()
        return wait_for(
            lambda: self.deployment.client.start(request).wait(),
            lambda answer: answer.status in self.ENDS,
            f"{request}",
        )

    def wrong(self) -> Iterable[str]:
        """The volume can be used, and the image is complete."""
        yield from self._status_differs("available")
        states = {image["status"] for image in self._images()}
        yield from self._differs("images", {"active"}, states)

    def clean(self) -> None:
        """Remove the images, too."""
        wait_until(lambda: all(image["status"] == "active" for image in self._images()))
        for image in self._images():
            del self.deployment.glance.images[image["id"]]
        super().clean()

    def _images(self) -> list[dict[str, Any]]:
        images = list(self.deployment.glance.images.values())
        return [image for image in images if image["name"] == self.key]


class UploadInUse(Upload):
    """The same with a volume in use, by force."""

    def prepare(self) -> None:
        """Attach it."""
        super().prepare()
        self.attachment = self._attach()

    def request(self) -> Request:
        """Return the call."""
        body = {"image_name": self.key, "disk_format": _UPLOADED_AS, "force": True}
        return self._action("os-volume_upload_image", body)

    def wrong(self) -> Iterable[str]:
        """It is in use as before, the image is complete, and no snapshot is left."""
        yield from self._status_differs("in-use")
        states = {image["status"] for image in self._images()}
        yield from self._differs("images", {"active"}, states)
        rows = [row["state"] for row in snapshot_store.list_of_volume(self.volume)]
        yield from self._differs("snapshots", [], rows)
        files = [path for path in (self._volumes_dir() / "snapshots").iterdir() if path.is_file()]
        yield from self._differs("files of snapshots", [], files)


CALLS = (CreateRaw, CreateConverted, Reimage, Upload, UploadInUse)
CACHED_CALLS = (CreateCached,)

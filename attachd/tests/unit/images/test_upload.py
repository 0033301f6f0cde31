# SPDX-License-Identifier: Apache-2.0
"""Volumes on their way to an image; qemu-img is real."""

from pathlib import Path
import subprocess
from types import SimpleNamespace
from unittest import mock

from attachd import exception
from attachd.images import glance, upload
from attachd.tests.fixtures import conf_fixture, fake_glance, lifetime, requirements

_MIB = 2**20


class _Volume:
    """Four MiB, of which the second has data."""

    def read(self, offset, length):
        return (b"data" * (length // 4)) if offset == _MIB else bytes(length)


class UploadTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        requirements.require_tool(self, "qemu-img")
        self.folder = Path(lifetime.temp_dir(self))
        self.fake = fake_glance.use(self)
        conf_fixture.override(self, "conversion_dir", f"{self.folder}/new", group="glance")
        conf_fixture.override(self, "conversion_free_space", 0, group="glance")
        patched = mock.patch.object(upload, "units", SimpleNamespace(Gi=_MIB, Mi=_MIB))
        patched.start()
        self.addCleanup(patched.stop)
        self.steps = []

    def upload(self, disk_format):
        image = self.fake.add(b"", status="queued", disk_format=disk_format)
        api = glance.ImageApi.of_service()
        upload.upload_volume(api, image, _Volume(), 4, self.steps.append)
        return image

    def test_raw_data_is_that_of_the_volume(self):
        image = self.upload("raw")
        self.assertEqual(4 * _MIB, self.fake.images[image]["size"])
        self.assertEqual([0, 0.25, 0.5, 0.75], self.steps)

    def test_each_format_has_the_data(self):
        for disk_format in ("qcow2", "vmdk", "vdi", "vhdx", "vhd"):
            with self.subTest(disk_format):
                received = bytearray()
                pieces = fake_glance._Received.__init__

                def keep(received_by, chunks, pieces=pieces, received=received):
                    pieces(received_by, (received.extend(it) or it for it in chunks))

                with mock.patch.object(fake_glance._Received, "__init__", keep):
                    self.upload(disk_format)
                self.assertEqual(b"data" * 10, self.converted(received, disk_format)[_MIB:][:40])
        self.assertEqual([], list((self.folder / "new").iterdir()))

    def converted(self, received, disk_format):
        image, raw = self.folder / "image", self.folder / "raw"
        image.write_bytes(bytes(received))
        name = "vpc" if disk_format == "vhd" else disk_format
        line = ["qemu-img", "convert", "-f", name, "-O", "raw", f"{image}", f"{raw}"]
        subprocess.run(line, check=True)
        return raw.read_bytes()

    def test_missing_image_is_reported(self):
        api = glance.ImageApi.of_service()
        with self.assertRaises(exception.ImageNotFound):
            upload.upload_volume(api, "none", _Volume(), 4, self.steps.append)

    def test_refused_data_is_reported_with_reason(self):
        self.fake.refuse_data = [(413, b"<title>T</title><p>Too <b>large</b>.</p>")]
        with self.assertRaisesRegex(exception.ImageUnacceptable, "Too large"):
            self.upload("raw")

    def test_image_that_has_all_data_is_kept_and_not_sent_again(self):
        image = self.upload("raw")
        self.fake.requests.clear()
        upload.upload_volume(glance.ImageApi.of_service(), image, _Volume(), 4, self.steps.append)
        self.assertEqual({"GET"}, {method for method, _path, _token in self.fake.requests})
        self.assertEqual("active", self.fake.images[image]["status"])

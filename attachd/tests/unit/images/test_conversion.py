# SPDX-License-Identifier: Apache-2.0
"""Images on their way into a volume; qemu-img is real."""

from collections.abc import Callable
from pathlib import Path
import subprocess
from types import SimpleNamespace
from unittest import mock

from attachd import exception
from attachd.images import conversion, glance, qemu_img
from attachd.tests.fixtures import conf_fixture, fake_glance, lifetime, requirements

_MIB = 2**20


class Target:
    """A volume, as the pieces that were written."""

    def __init__(self):
        self.pieces = {}

    def write(self, offset, data):
        self.pieces[offset] = bytes(data)

    def read(self, offset, length):
        """Return bytes of one piece."""
        found = (key for key, data in self.pieces.items() if key <= offset < key + len(data))
        start = next(found)
        return self.pieces[start][offset - start :][:length]


class ConversionCase(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        requirements.require_tool(self, "qemu-img")
        self.folder = Path(lifetime.temp_dir(self))
        self.fake = fake_glance.use(self)
        conf_fixture.override(self, "conversion_dir", f"{self.folder}/new", group="glance")
        conf_fixture.override(self, "conversion_free_space", 0, group="glance")
        self.target, self.steps = Target(), []

    def write(self, image, step: Callable[[float], None] | None = None):
        api = glance.ImageApi.of_service()
        conversion.write_image(api, api.get(image), self.target, 1, step or self.steps.append)

    def made(self, disk_format, *options):
        """Return an image of 64 MiB with some data from 1 MiB on, made by qemu-img."""
        raw, path = self.folder / "raw", self.folder / "made"
        with raw.open("wb") as file:
            file.seek(_MIB)
            file.write(b"data" * 100_000)
            file.truncate(64 * _MIB)
        name = "vpc" if disk_format == "vhd" else disk_format
        line = ["qemu-img", "convert", "-f", "raw", "-O", name, *options, f"{raw}", f"{path}"]
        subprocess.run(line, check=True)
        return self.fake.add(path.read_bytes(), disk_format=disk_format)


class WriteTest(ConversionCase):
    def test_raw_image_is_written_without_its_zeros(self):
        data = bytes(_MIB) + b"data" * (_MIB // 4) + bytes(3 * _MIB) + b"end"
        self.write(self.fake.add(data))
        self.assertEqual([_MIB, 5 * _MIB], sorted(self.target.pieces))
        self.assertEqual(b"end", self.target.pieces[5 * _MIB])
        self.assertEqual(1.0, self.steps[-1])
        self.assertEqual(sorted(self.steps), self.steps)

    def test_each_format_is_converted(self):
        for disk_format, *options in (
            ("qcow2",),
            ("qcow2", "-c"),
            ("vmdk",),
            ("vmdk", "-o", "subformat=streamOptimized"),
            ("vdi",),
            ("vhdx",),
            ("vhd", "-o", "subformat=dynamic"),
        ):
            with self.subTest(disk_format, options=options):
                self.target = Target()
                self.write(self.made(disk_format, *options))
                self.assertEqual(b"data" * 10, self.target.read(_MIB, 40))
                self.assertLess(sum(map(len, self.target.pieces.values())), 2 * _MIB)

    def test_nothing_is_left_of_conversion(self):
        self.write(self.made("qcow2"))
        self.assertEqual([], list((self.folder / "new").iterdir()))
        self.assertEqual(0o700, (self.folder / "new").stat().st_mode & 0o777)

    def test_step_that_raises_ends_conversion(self):
        def refuse(done):
            if done >= 0.5:
                raise exception.BackendError("Another process works on the volume.")

        image = self.made("qcow2")
        with self.assertRaises(exception.BackendError):
            self.write(image, refuse)
        self.assertEqual({}, self.target.pieces)


class FailureTest(ConversionCase):
    def test_damaged_image_is_unacceptable(self):
        image = self.made("qcow2")
        data = self.fake.data[image]
        damaged = self.fake.add(
            data[:196608] + b"\xff" * 1024 + data[197632:], disk_format="qcow2"
        )
        with self.assertRaisesRegex(exception.ImageUnacceptable, "it is damaged"):
            self.write(damaged)

    def test_full_disk_is_named_by_option(self):
        conf_fixture.override(self, "conversion_free_space", 10**6, group="glance")
        with self.assertRaisesRegex(exception.HostError, "conversion_dir"):
            self.write(self.made("qcow2"))

    def test_conversion_with_too_little_memory_is_ended(self):
        image = self.made("qcow2")
        with mock.patch.object(qemu_img, "units", SimpleNamespace(Mi=2**12, Gi=2**30)):  # 4 MiB
            self.assertRaises(exception.ImageUnacceptable, self.write, image)

    def test_machine_without_qemu_img_says_so(self):
        image = self.made("qcow2")
        with (
            mock.patch.object(qemu_img.commands, "which", return_value=None),
            self.assertRaisesRegex(exception.HostError, "qemu-utils"),
        ):
            self.write(image)

    def test_conversion_that_takes_too_long_is_ended(self):
        image = self.made("qcow2")
        sleeper = self.folder / "qemu-img"
        sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
        sleeper.chmod(0o755)
        conf_fixture.override(self, "conversion_timeout", 1, group="glance")  # the subject
        with (
            mock.patch.object(
                qemu_img.sandbox.Confinement,
                "command_line",
                lambda _self, *_line: [f"{sleeper}"],
            ),
            self.assertRaisesRegex(exception.ImageUnacceptable, "takes too long"),
        ):
            self.write(image)

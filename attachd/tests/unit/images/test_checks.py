# SPDX-License-Identifier: Apache-2.0
"""Checks of images, by what the Image service says and by their content."""

import hashlib
import struct

from attachd import exception
from attachd.images import checks, glance
from attachd.tests.fixtures import conf_fixture

_GIB = 2**30


def image(data=b"", **fields) -> glance.Image:
    body = {
        "id": "i",
        "status": "active",
        "size": len(data),
        "disk_format": "raw",
        "container_format": "bare",
        "os_hash_algo": "sha512",
        "os_hash_value": hashlib.sha512(data).hexdigest(),
        **fields,
    }
    return glance.Image.parse(body)


def qcow2(*, size=_GIB, backing=0, encryption=0, features=0, version=3) -> bytes:
    """Return the header of a qcow2 file."""
    head = struct.pack(
        ">4sIQIIQI", b"QFI\xfb", version, backing, 20 if backing else 0, 16, size, encryption
    )
    return (head.ljust(72, b"\0") + struct.pack(">Q", features)).ljust(1024, b"\0")


class UsableTest(conf_fixture.DefaultConfCase):
    def test_largest_image_that_fits_is_usable(self):
        checks.check_usable(image(size=2 * _GIB, min_disk=2, virtual_size=2 * _GIB), 2)

    def test_image_that_does_not_fit_is_refused(self):
        for fields in (
            {"size": 2 * _GIB + 1},
            {"min_disk": 3},
            {"virtual_size": 2 * _GIB + 1},
            {"status": "deactivated"},
        ):
            with self.subTest(fields), self.assertRaises(exception.InvalidInput):
                checks.check_usable(image(**fields), 2)

    def test_format_that_is_not_permitted_is_refused(self):
        conf_fixture.override(self, "disk_formats", ["raw"], group="glance")
        with self.assertRaisesRegex(exception.ImageUnacceptable, "takes raw"):
            checks.check_usable(image(b"data", disk_format="qcow2"), 1)


class ContentTest(conf_fixture.DefaultConfCase):
    def read(self, data, length=300, **fields):
        """Read an image in small chunks, and return what was checked."""
        checked = checks.CheckedData(
            image(data, **fields),
            iter([data[start : start + length] for start in range(0, len(data), length)]),
        )
        self.assertEqual(data, b"".join(checked))
        return checked

    def refused(self, reason, data, **fields):
        with self.assertRaisesRegex(exception.ImageUnacceptable, reason):
            self.read(data, **fields)

    def test_raw_data_is_read(self):
        self.read(b"data" * 1000)
        checks.CheckedData(image(b""), iter(()))

    def test_wrong_size_and_hash_are_refused(self):
        data = b"data" * 1000
        self.refused("not the 4001 bytes", data, size=4001)
        self.refused("not the 3999 bytes", data, size=3999)
        self.refused("does not have its checksum", data, os_hash_value="0")
        self.refused("names no checksum", data, os_hash_value=None)

    def test_checksum_counts_without_known_hash(self):
        data = b"data" * 1000
        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.read(data, os_hash_algo="newest", checksum=checksum)
        self.refused("its checksum", data, os_hash_algo="newest", checksum="0")

    def test_content_of_another_format_is_refused(self):
        self.refused("its content is qcow2", qcow2())
        self.refused("does not match", b"data" * 1000, disk_format="qcow2")
        self.refused("its content is luks", b"LUKS\xba\xbe\0\1".ljust(4096, b"\0"))

    def test_safe_content_is_accepted(self):
        self.read(qcow2(), disk_format="qcow2").check_content(1)

    def test_encryption_is_seen_in_data_that_comes_in_small_pieces(self):
        data = qcow2(encryption=1)
        with self.assertRaisesRegex(exception.ImageUnacceptable, "is encrypted"):
            self.read(data, 16, disk_format="qcow2").check_content(1)

    def test_content_that_leads_elsewhere_is_refused(self):
        for reason, header in (
            ("is not safe", qcow2(backing=200)),
            ("is not safe", qcow2(features=4)),
            ("is not safe", qcow2(features=1 << 40)),
            ("is not safe", qcow2(version=1)),
            ("is encrypted", qcow2(encryption=1)),
            ("its disk has 2 GiB", qcow2(size=_GIB + 1)),
        ):
            checked = self.read(header, disk_format="qcow2")
            with self.subTest(reason), self.assertRaisesRegex(exception.ImageUnacceptable, reason):
                checked.check_content(1)


class BeginningTest(conf_fixture.DefaultConfCase):
    """Images whose data does not pass through the manager."""

    def test_raw_image_with_any_plain_content_is_taken(self):
        iso = bytes(0x8000) + b"\1CD001\1" + bytes(4096)
        for disk_format, data in (("raw", b"x" * 4096), ("raw", bytes(512)), ("iso", iso)):
            checks.check_beginning(image(disk_format=disk_format), data)

    def test_raw_image_that_contains_another_format_is_refused(self):
        with self.assertRaisesRegex(exception.ImageUnacceptable, "its content is qcow2"):
            checks.check_beginning(image(), qcow2())

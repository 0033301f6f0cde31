# SPDX-License-Identifier: Apache-2.0
"""Tests of read-only loop devices of the file driver, behind a served API."""

import contextlib
import fcntl
import mmap
import os
from pathlib import Path
import socket
import struct
import uuid

from attachd.tests.fixtures import initiators, requirements
from attachd.tests.functional.multiattach_case import MultiattachCase, serve_backend
from attachd.tests.selection import full_only

_BLKROSET, _BLKROGET = 0x125D, 0x125E


def always(_lasting, folder):
    """Return the options of a backend with loop devices."""
    return {"file_loop_devices": "always", "file_devices_dir": f"{folder / 'names'}"}


@full_only("hosts")
class LoopDevicesTest(MultiattachCase):
    """The file driver, and two hosts that are this machine."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_device(self, "/dev/loop-control")
        self.a, self.b = initiators.LocalHost("host-a"), initiators.LocalHost("host-b")
        self.api = serve_backend(self, "file", always)

    def test_loop_device_of_read_only_attachment_is_read_only(self):
        for specs, mode in (({"mode": "RO"}, None), ({}, "ro")):
            volume = self.create_multiattach_volume(**specs)
            first, info_a = self.attach(volume, self.a)
            second, info_b = self.attach(volume, self.b, mode)
            self.addCleanup(self.detach, first)
            self.addCleanup(self.detach, second)
            self.a.write(info_a, 0, b"from a" * 1024)
            self.assertEqual((0, 1), (self.flag(info_a), self.flag(info_b)))
            self.assertRaises(initiators.Refused, self.b.write, info_b, 0, b"from b" * 1024)
            # Write as root can: take the flag away first.  The file is open for reading only.
            path = Path(info_b["data"]["device_path"])
            with path.open("rb") as device, contextlib.suppress(OSError):
                fcntl.ioctl(device, _BLKROSET, struct.pack("i", 0))
            with contextlib.suppress(OSError), path.open("r+b", buffering=0) as device:
                os.pwrite(device.fileno(), b"from b" * 1024, 0)
                os.fsync(device.fileno())
            self.assertEqual(b"from a", self.direct(info_b)[:6])
            self.a.write(info_a, 0, b"more a" * 1024)
            self.assertEqual(b"more a", self.direct(info_b)[:6])

    def test_loop_device_of_reader_stays_read_only_after_writer_detached(self):
        volume = self.create_multiattach_volume(mode="RO")
        first, info_a = self.attach(volume, self.a)
        second, info_b = self.attach(volume, self.b)
        self.addCleanup(self.detach, second)
        self.a.write(info_a, 0, b"from a" * 1024)
        self.detach(first)
        self.assertRaises(initiators.Refused, self.b.write, info_b, 0, b"from b" * 1024)
        third, info_a = self.attach(volume, self.a)
        self.addCleanup(self.detach, third)
        self.a.write(info_a, 0, b"more a" * 1024)
        self.assertEqual(b"more a", self.direct(info_b)[:6])

    @staticmethod
    def flag(info):
        """Return the kernel's read-only flag of the device: 1 if it is read-only."""
        with Path(info["data"]["device_path"]).open("rb") as device:
            return struct.unpack("i", fcntl.ioctl(device, _BLKROGET, bytes(4)))[0]

    @staticmethod
    def direct(info):
        """Read past the host's own cache, as those who share a disk have to."""
        descriptor = os.open(info["data"]["device_path"], os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 4096) as page:
                os.preadv(descriptor, [page], 0)
                return bytes(page)
        finally:
            os.close(descriptor)


def never(_lasting, _folder):
    """Return the options of a backend without loop devices, for this machine and another name."""
    return {"file_loop_devices": "never", "file_hosts": "also-here"}


class PlainFilesTest(MultiattachCase):
    """The file driver where there are no loop devices."""

    def setUp(self):
        super().setUp()
        self.api = serve_backend(self, "file", never)

    def reserve(self, volume):
        asked = {"volume_uuid": volume, "instance_uuid": f"{uuid.uuid4()}"}
        made = self.api.request_json("POST", "/attachments", {"attachment": asked})
        return f"/attachments/{made['attachment']['id']}"

    def connect(self, url, **connector):
        return self.api.request("PUT", url, {"attachment": {"connector": connector}})

    def test_plain_file_backend_refuses_read_only_and_other_hosts(self):
        url, machine = self.reserve(self.api.create_volume()), socket.gethostname()
        for connector, expected in (
            ({"host": machine, "mode": "ro"}, "plain files.*mode rw"),
            ({"host": "elsewhere"}, "files of another host.*file_hosts"),
        ):
            answer = self.connect(url, **connector)
            self.assertEqual(400, answer.status, answer)
            self.assertRegex(answer.message, expected)
            shown = self.api.request_json("GET", url)["attachment"]
            self.assertEqual("reserved", shown["status"])

    def test_plain_file_backend_accepts_this_machine_and_configured_hosts(self):
        for host in (socket.gethostname(), "also-here"):
            url = self.reserve(self.api.create_volume())
            answer = self.connect(url, host=host)
            self.assertEqual(200, answer.status, answer)
            self.api.request_json("DELETE", url)

    def test_plain_file_backend_refuses_type_with_readers(self):
        wanted = {"name": "one-writer", "extra_specs": {"multiattach": "<is> True", "mode": "RO"}}
        self.api.request_json("POST", "/types", {"volume_type": wanted})
        answer = self.api.request(
            "POST", "/volumes", {"volume": {"size": 1, "volume_type": "one-writer"}}
        )
        self.assertEqual(400, answer.status, answer)
        self.assertIn("read_only_enforced", answer.message)
        self.create_multiattach_volume()

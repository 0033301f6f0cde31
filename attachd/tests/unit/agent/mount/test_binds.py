# SPDX-License-Identifier: Apache-2.0
"""Checks before a bind mount; functional/test_node_volumes.py has real ones."""

from pathlib import Path
import unittest

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry
from attachd.agent.mount import binds
from attachd.agent.staging import Publication, Staging
from attachd.tests.fixtures import lifetime


class BindsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.target = str(self.folder / "target")
        self.file = self.folder / "file"
        self.file.write_bytes(bytes(4096))

    def assert_refused(self, message, call, *arguments, **named):
        with self.assertRaisesRegex(exception.HostError, message):
            call(*arguments, **named)

    def test_directory_without_mount_is_refused(self):
        self.assert_refused(
            "Nothing is mounted",
            binds.bind_directory,
            f"{self.folder}",
            self.target,
            read_only=False,
        )
        self.assertFalse(Path(self.target).exists())

    def test_plain_file_is_no_device(self):
        self.assert_refused("plain file", binds.bind_device, f"{self.file}", self.target)
        self.assertFalse(binds.is_device_at(f"{self.file}", self.target))
        self.assertFalse(binds.is_device_at(f"{self.file}", "/proc"))

    def test_link_is_not_followed(self):
        Path(self.target).symlink_to("/")
        for call in (
            lambda: binds.bind_directory("/proc", self.target, read_only=False),
            lambda: binds.bind_device("/dev/null", self.target),
            lambda: binds.unbind(self.target),
        ):
            self.assert_refused("symbolic link", call)
        self.assertTrue(Path(self.target).is_symlink())

    def test_target_without_mount_is_removed(self):
        for make in (Path.touch, Path.mkdir):
            make(Path(self.target))
            for _ in range(2):
                binds.unbind(self.target)
            self.assertFalse(Path(self.target).exists())
        binds.unbind(f"{self.file}/target")

    def test_target_with_content_is_kept(self):
        self.assert_refused("content of its own", binds.unbind, f"{self.file}")
        self.assert_refused("not empty", binds.unbind, f"{self.folder}")
        self.assertTrue(self.file.exists())

    def test_device_without_publication_may_go(self):
        device = Device(f"{self.file}", {})
        for staging in (
            None,
            Staging("/staging", "ext4", publications=(Publication("/proc"),)),
            Staging("/staging", None),
            Staging("/staging", None, publications=(Publication("/proc"),)),
        ):
            binds.check_no_publication(Entry("v", device=device, staging=staging))
        binds.check_no_publication(Entry("v", staging=Staging("/staging", None)))

# SPDX-License-Identifier: Apache-2.0
"""Mounts over files."""

import os
from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent import commands
from attachd.agent.connectors.qemu import fusemounts
from attachd.tests import machine


class MountTest(fixtures.TestWithFixtures):
    """A file that is mounted over another one, as daemons do."""

    def setUp(self):
        super().setUp()
        machine.need_root(self)
        folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        self.file, self.other = folder / "a file", folder / "other"
        self.file.write_text("below")
        self.other.write_text("above")
        self.lock = os.open(folder, os.O_RDONLY)
        self.addCleanup(os.close, self.lock)
        self.addCleanup(fusemounts.unmount, self.file, lock=self.lock)

    def test_all_mounts_go_even_if_they_are_in_use(self):
        self.assertFalse(fusemounts.is_mounted(self.file))
        for _ in range(2):
            commands.run("mount", "--bind", f"{self.other}", f"{self.file}")
        self.assertTrue(fusemounts.is_mounted(self.file))
        with self.file.open() as used:
            fusemounts.unmount(self.file, lock=self.lock)
            self.assertEqual("above", used.read())
        self.assertFalse(fusemounts.is_mounted(self.file))
        self.assertEqual("below", self.file.read_text())
        fusemounts.unmount(self.file, lock=self.lock)

    def test_a_mount_that_stays_is_an_error(self):
        commands.run("mount", "--bind", f"{self.other}", f"{self.file}")
        failing = exception.HostError(reason="not permitted")

        def fail(*line, **options):
            raise failing

        with (
            fixtures.MonkeyPatch("attachd.agent.commands.run", fail),
            self.assertRaises(exception.HostError),
        ):
            fusemounts.unmount(self.file, lock=self.lock)

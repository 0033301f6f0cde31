# SPDX-License-Identifier: Apache-2.0
"""Loop devices over images."""

from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import loop_devices
from attachd.linux import block_device, commands
from attachd.tests.fixtures import requirements
from attachd.tests.wait import TIMEOUT


class LoopTest(fixtures.TestWithFixtures):
    """Attach files to devices, and detach them."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        self.useFixture(fixtures.MonkeyPatch(f"{loop_devices.__name__}.DETACH_TIMEOUT", TIMEOUT))
        requirements.require_device(self, "/dev/loop-control")
        folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        self.image = folder / "an image"
        self.image.write_bytes(bytes(2**20))
        lock = (folder / "lock").open("w")
        self.addCleanup(lock.close)
        self.lock = lock.fileno()
        self.addCleanup(loop_devices.detach, self.image, lock=self.lock)

    def test_list_over_finds_devices_by_backing_file(self):
        self.assertEqual([], loop_devices.list_over(self.image))
        writable = loop_devices.attach(self.image, writable=True)
        reading = loop_devices.attach(self.image, writable=False)
        self.assertFalse(writable.read_only)
        self.assertTrue(reading.read_only)
        self.assertEqual({writable, reading}, set(loop_devices.list_over(self.image)))
        loop_devices.detach(self.image, lock=self.lock)
        self.assertEqual([], loop_devices.list_over(self.image))

    def test_attach_clears_earlier_read_only_flag(self):
        loop = loop_devices.attach(self.image, writable=True)
        commands.run("blockdev", "--setro", loop.path)
        self.addCleanup(commands.run, "blockdev", "--setrw", loop.path)
        loop_devices.detach(self.image, lock=self.lock)
        # Another process may use the device meanwhile.
        again = loop_devices.attach(self.image, writable=True)
        self.assertEqual([again], loop_devices.list_over(self.image))

    def test_refresh_grows_device_with_its_file(self):
        loop = loop_devices.attach(self.image, writable=True)
        with self.image.open("r+b") as file:
            file.truncate(2**21)
        loop_devices.refresh(loop)
        self.assertEqual(2**21, block_device.size(loop.path))

    def test_detach_of_open_device_raises_until_closed(self):
        loop = loop_devices.attach(self.image, writable=True)
        hasty = fixtures.MonkeyPatch(
            "attachd.agent.connectors.qemu.loop_devices.DETACH_TIMEOUT", 0.05
        )
        with hasty, Path(loop.path).open("rb"):
            for _ in range(2):
                with self.assertRaisesRegex(exception.HostError, "still in use by process"):
                    loop_devices.detach(self.image, lock=self.lock)
            self.assertEqual([True], [item.closing for item in loop_devices.list_over(self.image)])
        loop_devices.detach(self.image, lock=self.lock)

    def test_detach_leaves_device_of_another_file(self):
        attachment_id = loop_devices.attach(self.image, writable=True)
        other = self.image.with_name("other")
        other.write_bytes(bytes(2**20))
        loop_devices._clear(attachment_id, other, self.lock)
        self.assertEqual([attachment_id], loop_devices.list_over(self.image))

# SPDX-License-Identifier: Apache-2.0
"""What the kernel tells of block devices and files."""

from pathlib import Path

import fixtures

from attachd import exception
from attachd.agent import blocks, commands
from attachd.agent.userspace import loops
from attachd.tests import machine


class FileTest(fixtures.TestWithFixtures):
    """Files, and what is none."""

    def test_a_file_is_written_to_whoever_asks(self):
        path = self.useFixture(fixtures.TempDir()).path + "/file"
        self.assertFalse(blocks.exists(path))
        Path(path).write_bytes(bytes(700))
        self.assertTrue(blocks.exists(path))
        self.assertEqual(700, blocks.size(path))
        self.assertFalse(blocks.is_read_only(path))
        blocks.flush(path)

    def test_what_is_not_there_is_an_error(self):
        for call in (blocks.size, blocks.is_read_only, blocks.flush, blocks.check_written):
            with self.assertRaisesRegex(exception.HostError, "/dev/no-such"):
                call("/dev/no-such")
        self.assertFalse(blocks.exists("/dev/null"))


class HoldersTest(fixtures.TestWithFixtures):
    """What is made of a device, in a folder like the kernel's."""

    def test_a_path_is_part_of_its_multipath_device_and_of_nothing_else(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch("attachd.agent.blocks._BLOCK", folder))
        for disk, above, uuid in (("sdx", "dm-1", "mpath-3600"), ("sdy", "dm-2", "LVM-abc")):
            made = folder / disk / "holders" / above / "dm"
            made.mkdir(parents=True)
            (made / "uuid").write_text(f"{uuid}\n")
        for path, whole in (("sdx", "dm-1"), ("sdy", "sdy"), ("sdz", "sdz")):
            self.assertEqual(f"/dev/{whole}", blocks.whole(f"/dev/{path}"))


class IdentityTest(fixtures.TestWithFixtures):
    """What a disk is known by, in a folder like the kernel's."""

    def test_it_is_where_the_kind_of_disk_has_it(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch("attachd.agent.blocks._BLOCK", folder))
        for name, place in (("sdx", "device/wwid"), ("nvme0n1", "wwid"), ("dm-1", "dm/uuid")):
            file = folder / name / place
            file.parent.mkdir(parents=True)
            file.write_text(f"of-{name}\n")
            self.assertEqual(f"of-{name}", blocks.identity(f"/dev/{name}"))
        self.assertEqual("", blocks.identity("/dev/loop0"))


class DeviceTest(fixtures.TestWithFixtures):
    """A loop device."""

    def test_a_device_can_be_made_to_refuse_writes(self):
        machine.need_root(self)
        machine.need_device(self, "/dev/loop-control")
        image = Path(self.useFixture(fixtures.TempDir()).path).resolve() / "image"
        image.write_bytes(bytes(2**20))
        with image.open() as lock:
            path = loops.attach(image, writable=True, lock=lock.fileno()).path
            self.addCleanup(loops.detach, image, lock=0)
        self.assertEqual(2**20, blocks.size(path))
        self.assertFalse(blocks.is_read_only(path))
        # The device would remember it, whatever file it is over next.
        self.addCleanup(commands.run, "blockdev", "--setrw", path)
        blocks.make_read_only(path)
        self.assertTrue(blocks.is_read_only(path))
        blocks.make_read_only(path)
        self.assertRaises(OSError, Path(path).write_bytes, b"x")
        blocks.flush(path)
        blocks.check_written(path)
        self.assertEqual([], blocks.parts(path))

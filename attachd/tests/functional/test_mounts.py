# SPDX-License-Identifier: Apache-2.0
"""Devices are mounted and unmounted, as often as anybody asks, and never against their users."""

from concurrent import futures
import os
from pathlib import Path
import shutil
import subprocess

from attachd import exception
from attachd.agent.mount import filesystems, mountinfo, mounts, open_handles
from attachd.tests.fixtures import fake_host, requirements
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase

_MAPPER = """
import mmap, os, signal, sys
with open(sys.argv[1], "r+b") as file:
    kept = mmap.mmap(file.fileno(), 0)
os.closerange(3, 100)
print("ready", flush=True)
signal.pause()
"""


class MountTest(LoopDeviceCase):
    """The way there."""

    def test_a_device_is_mounted_and_used(self):
        device, folder = self.formatted(), self.place("a/new/folder")
        for _ in range(2):
            mounts.mount(device, folder, mode="rw")
        self.assertTrue(mounts.is_mounted(device, folder))
        (Path(folder) / "file").write_text("data")
        self.assertEqual(1, self.times(folder))
        for _ in range(2):
            mounts.unmount(folder)
        self.assertFalse(mounts.is_mounted(device, folder))
        self.assertEqual([], [*Path(folder).iterdir()])
        mounts.mount(device, folder, mode="rw")
        self.assertEqual("data", (Path(folder) / "file").read_text())

    def test_whoever_shuts_the_host_down_knows_that_it_takes_the_network(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="rw")
        # Where mount keeps what the kernel does not, for whoever unmounts.
        lines = Path("/run/mount/utab").read_text().splitlines()
        (line,) = [each for each in lines if f"TARGET={folder} " in each]
        self.assertIn("OPTS=_netdev", line.split())

    def test_many_who_mount_the_same_are_one(self):
        device, folder = self.formatted(), self.place()
        with futures.ThreadPoolExecutor(4) as pool:
            each = [pool.submit(mounts.mount, device, folder, mode="rw") for _ in range(4)]
        self.assertEqual([None] * 4, [one.result() for one in each])
        self.assertEqual(1, self.times(folder))

    def test_a_plain_file_is_mounted_and_unmounted(self):
        device = self.formatted()
        file, folder = str(self.folder / "plain"), self.place()
        shutil.copyfile(self.file_of(device), file)
        for _ in range(2):
            mounts.mount(file, folder, mode="rw")
        self.assertEqual(1, self.times(folder))
        with self.assertRaisesRegex(exception.DeviceBusy, f"{file} at {folder}.*on top of {file}"):
            open_handles.check_unused(file)
        mounts.unmount(folder, device=file)
        self.assertEqual(0, self.times(folder))
        open_handles.check_unused(file)

    def test_a_reader_cannot_write(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="ro")
        mounts.mount(device, folder, mode="ro")
        with self.assertRaises(OSError):
            (Path(folder) / "file").write_text("data")
        with self.assertRaisesRegex(exception.HostError, "read-only, and mode rw is wanted"):
            mounts.mount(device, folder, mode="rw")

    def test_who_writes_is_no_reader(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="rw")
        with self.assertRaisesRegex(exception.HostError, "for writing, and mode ro is wanted"):
            mounts.mount(device, folder, mode="ro")

    def test_a_device_that_refuses_writes_is_not_mounted_for_writing(self):
        device, folder = self.device(0, "--read-only", content=self.clean()), self.place()
        with self.assertRaisesRegex(exception.HostError, f"{device} cannot be mounted"):
            mounts.mount(device, folder, mode="rw")
        self.assertEqual(0, self.times(folder))
        mounts.mount(device, folder, mode="ro")

    def test_what_is_there_is_left_there(self):
        first, second, folder = self.formatted(), self.formatted(), self.place()
        mounts.mount(first, folder, mode="rw")
        with self.assertRaisesRegex(
            exception.HostError, f"{first} is mounted at {folder} already"
        ):
            mounts.mount(second, folder, mode="rw")
        mounts.unmount(folder, device=second)
        self.assertTrue(mounts.is_mounted(first, folder))
        self.assertFalse(mounts.is_mounted(second, folder))
        mounts.unmount(folder, device=first)
        self.assertEqual(0, self.times(folder))

    def test_a_folder_with_files_is_refused(self):
        device, folder = self.formatted(), self.place()
        Path(folder).mkdir()
        (Path(folder) / "file").touch()
        with self.assertRaisesRegex(exception.HostError, "is not empty"):
            mounts.mount(device, folder, mode="rw")
        with self.assertRaisesRegex(exception.HostError, "cannot be used as a mountpoint"):
            mounts.mount(device, f"{folder}/file", mode="rw")
        self.assertEqual(0, self.times(folder))

    def test_a_folder_is_the_same_by_each_of_its_names(self):
        device, folder = self.formatted(), self.place("name with \\ and space\n")
        Path(folder).mkdir()
        link = self.folder / "link"
        link.symlink_to(folder)
        mounts.mount(device, f"{link}", mode="rw")
        mounts.mount(device, folder, mode="rw")
        self.assertEqual(1, self.times(folder))
        mounts.unmount(f"{link}")
        self.assertEqual(0, self.times(folder))

    def test_what_is_no_file_system_is_named(self):
        device, folder = self.device(), self.place()
        with self.assertRaisesRegex(exception.HostError, "has no file system.*--mkfs"):
            mounts.mount(device, folder, mode="rw")
        sfdisk = requirements.require_tool(self, "sfdisk")
        self.run_tool(sfdisk, "--quiet", "--label", "gpt", device, input=",,\n")
        self.assertEqual("data", filesystems.get_type(device))
        with self.assertRaisesRegex(exception.HostError, r"a partition table \(gpt\)"):
            mounts.mount(device, folder, mode="rw")
        with self.assertRaisesRegex(exception.HostError, r"a partition table \(gpt\)"):
            fake_host.make_filesystem(device, "ext4", print)

    def test_a_broken_file_system_is_told_as_mount_tells_it(self):
        device, folder = self.formatted(), self.place()
        with Path(device).open("r+b") as file:  # group descriptors
            file.seek(1024 * 2)
            file.write(b"\xff" * 4096)
            file.seek(4096)
            file.write(b"\xff" * 4096)
        with self.assertRaisesRegex(exception.HostError, "cannot be mounted at .*dmesg"):
            mounts.mount(device, folder, mode="rw")

    def clean(self):
        device = self.formatted()
        self.run_tool("sync", device)
        return self.file_of(device)

    def times(self, folder):
        path = os.path.realpath(folder)
        return [each.mountpoint for each in mountinfo.list_mounts()].count(path)


class DirtyTest(LoopDeviceCase):
    """Somebody died, or still writes: the journal has something to say, and must not be asked."""

    def test_a_reader_sees_a_file_system_without_its_journal(self):
        for kind, size in (("ext4", 16 * MIB), ("xfs", 300 * MIB)):
            copy, folder = self.dirty(kind, size), self.place(f"{kind} copy")
            device = self.device(0, "--read-only", content=copy)
            before = self.file_of(device).read_bytes()
            mounts.mount(device, folder, mode="ro")
            self.assertTrue(Path(folder).is_dir())
            mounts.unmount(folder)
            self.assertEqual(before, self.file_of(device).read_bytes())
            with self.assertRaisesRegex(exception.HostError, f"{device} cannot be mounted"):
                mounts.mount(device, folder, mode="rw")

    def test_a_reader_of_a_device_that_takes_writes_writes_nothing(self):
        for kind, size in (("ext4", 16 * MIB), ("xfs", 300 * MIB)):
            device, folder = self.device(0, content=self.dirty(kind, size)), self.place("copy")
            self.run_tool("sync", device)
            before = self.file_of(device).read_bytes()
            mounts.mount(device, folder, mode="ro")
            mounts.unmount(folder)
            self.run_tool("sync", device)
            self.assertEqual(before, self.file_of(device).read_bytes(), kind)

    def test_a_writer_has_it_replayed(self):
        device, folder = self.device(0, content=self.dirty("ext4", 16 * MIB)), self.place("copy")
        mounts.mount(device, folder, mode="rw")
        self.assertEqual("data", (Path(folder) / "file").read_text())

    def dirty(self, kind, size):
        """Return the file of a file system that was copied while it was mounted."""
        device, folder = self.formatted(kind, size), self.place(kind)
        mounts.mount(device, folder, mode="rw")
        file = Path(folder) / "file"
        file.write_text("data")
        with file.open() as opened:
            os.fsync(opened.fileno())
        self.run_tool("sync", device)
        copy = self.folder / f"{kind}-copy"
        shutil.copyfile(self.file_of(device), copy)
        return copy


class UnmountTest(LoopDeviceCase):
    """The way back, past whoever is in the way."""

    def setUp(self):
        super().setUp()
        self.volume, self.there = self.formatted(), self.place()
        mounts.mount(self.volume, self.there, mode="rw")
        self.file = Path(self.there) / "file"
        self.file.write_bytes(bytes(MIB))

    def test_processes_keep_it(self):
        for words, told, where in (
            (("sh", "-c", "echo ready; exec sleep 600"), "working directory", {"cwd": self.there}),
            (("sh", "-c", f"exec 3<{self.file}; echo ready; exec sleep 600"), "open .*/file", {}),
        ):
            process = self.process(*words, **where)
            self.refused(rf"process {process.pid} \(\w+: {told}")
            self.end(process)
        self.goes()

    def test_a_mapped_file_keeps_it(self):
        process = self.python(_MAPPER, f"{self.file}")
        self.refused(rf"process {process.pid} \(.*: mapped {self.file}")
        self.end(process)
        self.goes()

    def test_a_program_that_runs_from_there_keeps_it(self):
        program = Path(self.there) / "program"
        shutil.copy(requirements.require_tool(self, "sleep"), program)
        process = subprocess.Popen([program, "600"])
        self.addCleanup(self.end, process)
        self.refused(rf"process {process.pid} \(program: program {program}")
        self.end(process)
        self.goes()

    def test_other_mounts_keep_it(self):
        second, beneath = self.formatted(), f"{self.there}/beneath"
        self.addCleanup(self.goes)
        self.addCleanup(mounts.unmount, beneath)
        mounts.mount(second, beneath, mode="rw")
        self.refused(f"the mount of {second} at {beneath}")

    def test_a_loop_device_over_its_files_keeps_it(self):
        loop = self.run_tool("losetup", "--find", "--show", str(self.file)).strip()
        self.addCleanup(self.goes)
        self.addCleanup(self.run_tool, "losetup", "--detach", loop)
        self.refused(f"{loop} over {self.file}")

    def test_a_mount_of_the_same_elsewhere_does_not_keep_it(self):
        other = self.place("other")
        mounts.mount(self.volume, other, mode="rw")
        (Path(other) / "file").read_bytes()
        with (Path(other) / "file").open():
            self.goes()
        with self.assertRaisesRegex(exception.DeviceBusy, f"{self.volume} at {other}"):
            open_handles.check_unused(self.volume)

    def refused(self, users):
        for ask in (mounts.check_unmountable, mounts.unmount):
            with self.assertRaisesRegex(
                exception.DeviceBusy, f"{self.there} is in use by {users}"
            ):
                ask(self.there)
            self.assertTrue(mounts.is_mounted(self.volume, self.there))

    def goes(self):
        mounts.check_unmountable(self.there)
        mounts.unmount(self.there)
        self.assertFalse(mounts.is_mounted(self.volume, self.there))

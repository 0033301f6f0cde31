# SPDX-License-Identifier: Apache-2.0
"""Tests of mounting and unmounting devices: repeated, and while they are in use."""

from concurrent import futures
import contextlib
import os
from pathlib import Path
import shutil
import stat
import subprocess

from attachd import exception
from attachd.agent.mount import filesystems, mounts, open_handles
from attachd.agent.mount.mount_rules import MountRules
from attachd.linux import mountinfo
from attachd.tests.fixtures import fake_host, requirements
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase, attach
from attachd.tests.selection import full_only

_MAPPER = """
import mmap, os, signal, sys
with open(sys.argv[1], "r+b") as file:
    kept = mmap.mmap(file.fileno(), 0)
os.closerange(3, 100)
print("ready", flush=True)
signal.pause()
"""


@full_only("hosts")
class MountTest(LoopDeviceCase):
    """The way there."""

    def test_mount_of_device_is_usable(self):
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

    def test_mount_is_marked_as_network_mount(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="rw")
        # Where mount keeps what the kernel does not, for umount.
        lines = Path("/run/mount/utab").read_text().splitlines()
        (line,) = [item for item in lines if f"TARGET={folder} " in item]
        self.assertIn("OPTS=_netdev", line.split())

    def test_mount_of_same_device_at_once_mounts_once(self):
        device, folder = self.formatted(), self.place()
        with futures.ThreadPoolExecutor(4) as pool:
            item = [pool.submit(mounts.mount, device, folder, mode="rw") for _ in range(4)]
        self.assertEqual([None] * 4, [one.result() for one in item])
        self.assertEqual(1, self.times(folder))

    def test_mount_and_unmount_of_plain_file_work(self):
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

    def test_mount_read_only_refuses_writes(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="ro")
        mounts.mount(device, folder, mode="ro")
        with self.assertRaises(OSError):
            (Path(folder) / "file").write_text("data")
        with self.assertRaisesRegex(exception.HostError, "read-only, and mode rw is requested"):
            mounts.mount(device, folder, mode="rw")

    def test_mount_writable_of_read_only_mounted_device_is_refused(self):
        device, folder = self.formatted(), self.place()
        mounts.mount(device, folder, mode="rw")
        with self.assertRaisesRegex(exception.HostError, "for writing, and mode ro is requested"):
            mounts.mount(device, folder, mode="ro")

    def test_mount_writable_of_read_only_device_is_refused(self):
        device, folder = self.device(0, "--read-only", content=self.clean()), self.place()
        with self.assertRaisesRegex(exception.HostError, f"{device} cannot be mounted"):
            mounts.mount(device, folder, mode="rw")
        self.assertEqual(0, self.times(folder))
        mounts.mount(device, folder, mode="ro")

    def test_mount_keeps_an_existing_directory(self):
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

    def test_mount_on_directory_with_files_is_refused(self):
        device, folder = self.formatted(), self.place()
        Path(folder).mkdir()
        (Path(folder) / "file").touch()
        with self.assertRaisesRegex(exception.HostError, "is not empty"):
            mounts.mount(device, folder, mode="rw")
        with self.assertRaisesRegex(exception.HostError, "cannot be used as a mountpoint"):
            mounts.mount(device, f"{folder}/file", mode="rw")
        self.assertEqual(0, self.times(folder))

    def test_mount_point_is_recognised_by_each_path(self):
        device, folder = self.formatted(), self.place("name with \\ and space\n")
        Path(folder).mkdir()
        link = self.folder / "link"
        link.symlink_to(folder)
        mounts.mount(device, f"{link}", mode="rw")
        mounts.mount(device, folder, mode="rw")
        self.assertEqual(1, self.times(folder))
        mounts.unmount(f"{link}")
        self.assertEqual(0, self.times(folder))

    def test_mount_without_file_system_names_the_content(self):
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

    def test_mount_of_broken_file_system_reports_mounts_message(self):
        device, folder = self.formatted(), self.place()
        with Path(device).open("r+b") as file:  # group descriptors
            file.seek(1024 * 2)
            file.write(b"\xff" * 4096)
            file.seek(4096)
            file.write(b"\xff" * 4096)
        with self.assertRaisesRegex(exception.HostError, "cannot be mounted at .*dmesg"):
            mounts.mount(device, folder, mode="rw")

    def test_hostile_content_has_no_rights_on_the_host(self):
        device, folder = self.formatted(), self.place()
        inner = self.folder / "made"
        inner.mkdir()
        self.run_tool("mount", device, f"{inner}")
        program = shutil.copy(requirements.require_tool(self, "id"), inner / "id")
        os.chmod(program, 0o4755)  # noqa: PTH101
        os.mknod(inner / "disk", 0o666 | stat.S_IFBLK, Path(device).stat().st_rdev)
        inner.chmod(0o755)
        self.run_tool("umount", f"{inner}")
        # What the kernel does about an error of this file system: the image says so.
        self.run_tool("tune2fs", "-e", "panic", device)

        mounts.mount(device, folder, mode="rw")
        run = ["setpriv", "--reuid=65534", "--clear-groups", f"{folder}/id", "-u"]
        self.assertEqual("65534", self.run_tool(*run).strip())
        with self.assertRaises(PermissionError):
            (Path(folder) / "disk").open("rb")
        (found,) = [item for item in mountinfo.list_mounts() if item.mountpoint == folder]
        line = next(
            item
            for item in Path("/proc/self/mountinfo").read_text().splitlines()
            if item.startswith(f"{found.mount_id} ")
        )
        # The kernel shows it where it differs from the image.
        self.assertIn("errors=remount-ro", line)
        mounts.unmount(folder)

        rules = MountRules((), "suid,dev")
        mounts.mount(device, folder, mode="rw", rules=rules)
        self.assertEqual("0", self.run_tool(*run).strip())

    def test_file_system_with_journal_on_another_device_is_not_mounted(self):
        journal, folder = self.device(), self.place()
        self.run_tool("mke2fs", "-q", "-b", "4096", "-O", "journal_dev", journal)
        device = self.device()
        self.run_tool("mkfs.ext4", "-q", "-b", "4096", "-J", f"device={journal}", device)
        named = self.formatted()
        # Without a journal of its own, it may name one by its mount options.
        self.run_tool("tune2fs", "-E", f"mount_opts=journal_path={journal}", named)
        before = self.file_of(journal).read_bytes()
        for mode in ("rw", "ro"):
            with self.assertRaisesRegex(exception.HostError, "journal on another device"):
                mounts.mount(device, folder, mode=mode)
            with contextlib.suppress(exception.HostError):
                mounts.mount(named, folder, mode=mode)
                mounts.unmount(folder)
        self.run_tool("sync")
        self.assertEqual(before, self.file_of(journal).read_bytes())

    def test_journal_on_another_device_is_used_if_the_caller_names_it(self):
        journal, device, folder = self.device(), self.device(), self.place()
        self.run_tool("mke2fs", "-q", "-b", "4096", "-O", "journal_dev", journal)
        self.run_tool("mkfs.ext4", "-q", "-b", "4096", "-J", f"device={journal}", device)
        rules = MountRules((), f"journal_path={journal}")
        mounts.mount(device, folder, mode="rw", rules=rules)
        self.assertTrue(mounts.is_mounted(device, folder))
        mounts.unmount(folder)

    def test_other_file_systems_are_refused_by_name_unless_allowed(self):
        device, folder = self.device(), self.place()
        self.run_tool(requirements.require_tool(self, "mkfs.minix"), device)
        with self.assertRaisesRegex(exception.HostError, "minix.*--allow-filesystem minix"):
            mounts.mount(device, folder, mode="rw")
        self.assertEqual(0, self.times(folder))
        try:
            mounts.mount(device, folder, mode="rw", rules=MountRules(("minix",)))
        except exception.HostError as error:  # of a kernel without it
            self.assertIn("unknown filesystem type", f"{error}")

    def clean(self):
        device = self.formatted()
        self.run_tool("sync", device)
        return self.file_of(device)

    def times(self, folder):
        path = os.path.realpath(folder)
        return [mount.mountpoint for mount in mountinfo.list_mounts()].count(path)


@full_only("hosts")
class DirtyTest(LoopDeviceCase):
    """A file system whose journal must be replayed, by a writer only."""

    def test_mount_read_only_of_dirty_file_system_without_its_journal_writes_nothing(self):
        for kind, size, option in (
            ("ext4", 16 * MIB, "noload"),
            ("xfs", 300 * MIB, "norecovery"),
        ):
            for flags in (["--read-only"], []):
                with self.subTest(f"{kind} {flags}"):
                    copy, folder = self.dirty(kind, size), self.place(f"{kind} copy")
                    device = self.device(0, *flags, content=copy)
                    self.run_tool("sync", device)
                    before = self.file_of(device).read_bytes()
                    rules = MountRules((), option)
                    mounts.mount(device, folder, mode="ro", rules=rules)
                    self.assertTrue(Path(folder).is_dir())
                    mounts.unmount(folder)
                    mounts.unmount(f"{self.folder / kind}")
                    self.run_tool("sync", device)
                    self.assertEqual(before, self.file_of(device).read_bytes())

    def test_mount_writable_of_dirty_read_only_device_is_refused(self):
        device = self.device(0, "--read-only", content=self.dirty("ext4", 16 * MIB))
        with self.assertRaisesRegex(exception.HostError, f"{device} cannot be mounted"):
            mounts.mount(device, self.place("copy"), mode="rw")

    def test_mount_writable_of_dirty_file_system_replays_the_journal(self):
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


@full_only("hosts")
class UnmountTest(LoopDeviceCase):
    """Tests of unmounting devices that are in use."""

    def setUp(self):
        super().setUp()
        self.volume, self.mountpoint = self.formatted(), self.place()
        mounts.mount(self.volume, self.mountpoint, mode="rw")
        self.file = Path(self.mountpoint) / "file"
        self.file.write_bytes(bytes(MIB))

    def test_unmount_with_open_files_is_refused(self):
        for words, result, where in (
            (
                ("sh", "-c", "echo ready; exec sleep 600"),
                "working directory",
                {"cwd": self.mountpoint},
            ),
            (("sh", "-c", f"exec 3<{self.file}; echo ready; exec sleep 600"), "open .*/file", {}),
        ):
            process = self.process(*words, **where)
            self.refused(rf"process {process.pid} \(\w+: {result}")
            self.end(process)
        self.goes()

    def test_unmount_with_mapped_file_is_refused(self):
        process = self.python(_MAPPER, f"{self.file}")
        self.refused(rf"process {process.pid} \(.*: mapped {self.file}")
        self.end(process)
        self.goes()

    def test_unmount_with_running_program_is_refused(self):
        program = Path(self.mountpoint) / "program"
        shutil.copy(requirements.require_tool(self, "sleep"), program)
        process = subprocess.Popen([program, "600"])
        self.addCleanup(self.end, process)
        self.refused(rf"process {process.pid} \(program: program {program}")
        self.end(process)
        self.goes()

    def test_unmount_with_mounts_below_is_refused(self):
        second, beneath = self.formatted(), f"{self.mountpoint}/beneath"
        self.addCleanup(self.goes)
        self.addCleanup(mounts.unmount, beneath)
        mounts.mount(second, beneath, mode="rw")
        self.refused(f"the mount of {second} at {beneath}")

    def test_unmount_with_loop_device_over_a_file_is_refused(self):
        loop = attach(self.file)
        self.addCleanup(self.goes)
        self.addCleanup(self.run_tool, "losetup", "--detach", loop)
        self.refused(f"{loop} over {self.file}")

    def test_unmount_with_same_device_mounted_elsewhere_succeeds(self):
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
                exception.DeviceBusy, f"{self.mountpoint} is in use by {users}"
            ):
                ask(self.mountpoint)
            self.assertTrue(mounts.is_mounted(self.volume, self.mountpoint))

    def goes(self):
        mounts.check_unmountable(self.mountpoint)
        mounts.unmount(self.mountpoint)
        self.assertFalse(mounts.is_mounted(self.volume, self.mountpoint))

# SPDX-License-Identifier: Apache-2.0
"""Tests of making and mounting a file system by a process that is killed at each step."""

import contextlib
import os
from pathlib import Path
import subprocess
import sys
import time

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry, Journal, Step
from attachd.agent.mount import filesystems, format_and_mount, mounts
from attachd.linux import loops
from attachd.tests.fixtures import hostile_names
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

_PLACER = """
import sys
from pathlib import Path
from attachd.agent.mount import format_and_mount
from attachd.agent.journal import Journal
journal = Journal(Path(sys.argv[1]))
print("ready", flush=True)
format_and_mount.mount_volume(journal, journal.get(sys.argv[2]), print, mode="rw")
"""

_REAL = 'PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin mkfs.ext4 "$@" || exit'
_HOLD = "touch {flag}; exec sleep 600"
_DEVICE = 'for device; do :; done; exec 3<>"$device"'
_STAGES = {
    "before anything is written": "",
    "with a block somewhere": f"{_DEVICE}; printf data | dd of=/dev/fd/3 seek=4096 bs=1024",
    "before the superblock": f"{_REAL}; {_DEVICE}; head -c 4096 /dev/zero | cat 1<>/dev/fd/3",
    "when it is whole": f"{_REAL}; {_DEVICE}",
}
"""What mkfs.ext4 has done when its caller is killed; it has the device open."""


@full_only("crash")
class KilledTest(LoopDeviceCase):
    """Another process always follows the killed one."""

    def setUp(self):
        super().setUp()
        self.journal = Journal(self.folder / "host")
        self.volume, self.mountpoint = self.device(), self.place()
        self.progress = []

    def test_mkfs_killed_is_repeated(self):
        for number, (stage, script) in enumerate(_STAGES.items()):
            with self.subTest(stage):
                self.volume = self.device()
                entry = self.killed(script)
                whole = filesystems.get_type(self.volume)
                self.assertEqual("ext4" if stage == "when it is whole" else None, whole)
                self.assertEqual("ext4", entry.formatting)
                self.assertFalse(mounts.is_mounted(self.volume, self.mountpoint))
                entry = self.go_on(entry)
                self.assertIsNone(entry.formatting)
                self.assertTrue(mounts.is_mounted(self.volume, self.mountpoint))
                (Path(self.mountpoint) / "file").write_text(f"{number}")
                format_and_mount.unmount_volume(self.journal, entry, present=True)
                subprocess.run(["e2fsck", "-fn", self.volume], check=True, capture_output=True)

    def test_mkfs_killed_leaves_nothing_after_undo(self):
        for stage, script in _STAGES.items():
            with self.subTest(stage):
                self.volume = self.device()
                entry = format_and_mount.unmount_volume(
                    self.journal, self.killed(script), present=True
                )
                self.assertEqual((None, None), (entry.mountpoint, entry.formatting))
                self.run_tool("sync", self.volume)
                self.assertEqual({0}, set(Path(self.volume).read_bytes()))

    def test_mount_without_file_system_after_killed_mkfs_is_refused(self):
        entry = self.killed(_STAGES["when it is whole"])
        with self.assertRaisesRegex(exception.HostError, "only part of a file system"):
            self.go_on(self.journal.write(entry, mkfs=None))
        self.assertFalse(mounts.is_mounted(self.volume, self.mountpoint))

    def test_mount_of_file_system_used_meanwhile_succeeds(self):
        entry, other = self.killed(_STAGES["when it is whole"]), self.place("other")
        mounts.mount(self.volume, other, mode="rw")
        (Path(other) / "precious").write_text("data")
        mounts.unmount(other)
        with self.assertRaisesRegex(exception.HostError, "has other contents since"):
            self.go_on(entry)
        self.go_on(self.journal.get(entry.id))
        self.assertEqual("data", (Path(self.mountpoint) / "precious").read_text())

    def test_mount_killed_at_any_step_is_repeated(self):
        self.run_tool("mkfs.ext4", "-q", self.volume)
        entry = self.entry()
        for delay in range(0, 60, 12):
            placer = self.placer(entry)
            time.sleep(delay / 1000)  # until anywhere in its work: what follows is the same
            self.end(placer)
            self.assertEqual(Step.MOUNTING, self.go_on(entry).step)
            self.assertTrue(mounts.is_mounted(self.volume, self.mountpoint))
            mounts.unmount(self.mountpoint, device=self.volume)
            self.assertFalse(mounts.is_mounted(self.volume, self.mountpoint))

    def test_unmount_leaves_mounts_of_others(self):
        other = self.formatted()
        mounts.mount(other, self.mountpoint, mode="rw")
        format_and_mount.unmount_volume(self.journal, self.entry(), present=True)
        self.assertTrue(mounts.is_mounted(other, self.mountpoint))

    def test_unmount_of_busy_mount_is_refused(self):
        self.run_tool("mkfs.ext4", "-q", self.volume)
        entry = self.go_on(self.entry())
        with (Path(self.mountpoint) / "file").open("w"), self.assertRaises(exception.DeviceBusy):
            format_and_mount.unmount_volume(self.journal, entry, present=True)
        self.assertEqual(self.mountpoint, self.journal.get(entry.id).mountpoint)
        self.assertIsNone(
            format_and_mount.unmount_volume(
                self.journal, self.journal.get(entry.id), present=True
            ).mountpoint
        )
        self.assertFalse(mounts.is_mounted(self.volume, self.mountpoint))

    def killed(self, script):
        """Return the journal entry of a process killed while mkfs.ext4 ran."""
        tools, flag = self.folder / "tools", self.folder / "flag"
        tools.mkdir(exist_ok=True)
        flag.unlink(missing_ok=True)
        tool = tools / "mkfs.ext4"
        tool.write_text(f"#!/bin/sh\n{script}\n{_HOLD.format(flag=flag)}\n")
        tool.chmod(0o755)
        entry = self.entry(mkfs="ext4")
        placer = self.placer(entry, PATH=f"{tools}:{os.environ['PATH']}")
        wait_until(flag.exists)
        self.end(placer)
        return self.journal.get(entry.id)

    def placer(self, entry, **environment):
        words = [sys.executable, "-W", "ignore", "-c", _PLACER, self.journal.state_path, entry.id]
        return self.process(*words, env={**os.environ, **environment})

    def entry(self, **values):
        device = Device(self.volume, {})
        return self.journal.write(Entry("v", device=device, mountpoint=self.mountpoint, **values))

    def go_on(self, entry):
        return format_and_mount.mount_volume(self.journal, entry, self.progress.append, mode="rw")


@full_only("hosts")
class SharedFileTest(LoopDeviceCase):
    """A plain file in a directory in which another machine replaces names."""

    def setUp(self):
        super().setUp()
        self.journal = Journal(self.folder / "host")
        self.share, self.mountpoint = self.folder / "share", self.place()
        self.share.mkdir()
        self.file, self.victim = self.share / "file", self.folder / "victim"
        for path in (self.file, self.victim):
            path.touch()
            os.truncate(path, 16 * MIB)
        info = {"driver_volume_type": "local", "folder": f"{self.share}"}
        self.new = Entry("v", device=Device(f"{self.file}", {}), connection_info=info)

    def mounted(self, **values):
        entry = self.journal.write(self.new, mountpoint=self.mountpoint, **values)
        return format_and_mount.mount_volume(self.journal, entry, str, mode="rw")

    def unmount(self, entry):
        return format_and_mount.unmount_volume(self.journal, entry, present=True)

    def test_file_is_mounted_and_unmounted_again(self):
        for values in ({"mkfs": "ext4"}, {}, {"mkfs": "ext4"}):
            for _ in range(2):
                entry = self.mounted(**values)
                self.assertTrue(mounts.is_mounted(f"{self.file}", self.mountpoint))
                self.assertEqual(1, len(loops.list_made_for(self.file)))
            self.unmount(entry)
            self.assertFalse(mounts.is_mounted(f"{self.file}", self.mountpoint))
            wait_until(lambda: not loops.list_made_for(self.file))

    def test_link_in_place_of_the_file_is_not_followed(self):
        self.file.unlink()
        self.file.symlink_to(self.victim)
        for values in ({"mkfs": "ext4"}, {"formatting": "ext4", "mkfs": "ext4"}, {}):
            with self.assertRaisesRegex(exception.HostError, "administrator of the storage"):
                self.mounted(**values)
        with self.assertRaisesRegex(exception.HostError, "administrator of the storage"):
            self.unmount(self.journal.write(self.new, formatting="ext4"))
        self.assertEqual(0, self.victim.stat().st_blocks)

    def test_swapped_names_do_not_lead_to_another_file(self):
        with hostile_names.swapping(self.file, self.victim):
            for _ in range(20):
                with contextlib.suppress(exception.HostError):
                    self.unmount(self.mounted(mkfs="ext4"))
        self.assertEqual(0, self.victim.stat().st_blocks)

    def test_file_that_was_replaced_is_unmounted(self):
        entry = self.mounted(mkfs="ext4")
        self.file.unlink()
        self.file.symlink_to(self.victim)
        self.assertTrue(mounts.is_mounted(f"{self.file}", self.mountpoint))
        self.unmount(entry)
        self.assertFalse(os.path.ismount(self.mountpoint))


@full_only("hosts")
class NestedMountTest(LoopDeviceCase):
    """A mountpoint below that of another volume, whose content has links."""

    def setUp(self):
        super().setUp()
        self.journal, self.target = Journal(self.folder / "host"), self.folder / "target"
        self.target.mkdir()
        self.outer = Path(self.place())
        self.mounted("outer", self.outer)

    def mounted(self, volume_id, mountpoint):
        entry = self.journal.list_for_volume(volume_id)
        if not entry:
            device = Device(self.device(), {})
            entry = [Entry(volume_id, device=device, mkfs="ext4", assume_empty=True)]
        entry = self.journal.write(entry[0], mountpoint=f"{mountpoint}")
        return format_and_mount.mount_volume(self.journal, entry, str, mode="rw")

    def test_no_link_in_the_content_leads_the_mount(self):
        (self.outer / "there").symlink_to(self.target)
        (self.outer / "up").symlink_to(f"../{self.target.name}")
        (self.outer / "round").symlink_to("round")
        outside = self.folder / "outside"
        outside.symlink_to(self.outer / "there")
        for mountpoint in (
            self.outer / "there",
            self.outer / "there" / "new",
            self.outer / "up",
            self.outer / "round",
            outside,
        ):
            with self.subTest(mountpoint):
                with self.assertRaisesRegex(exception.HostError, "symbolic link|many links"):
                    self.mounted("inner", mountpoint)
                self.assertEqual([], list(self.target.iterdir()))
                self.assertFalse(os.path.ismount(self.target))

    def test_directories_of_the_content_and_links_of_the_host_are_used(self):
        outside = self.folder / "outside"
        outside.symlink_to(self.outer)
        for mountpoint in (self.outer / "inner", outside / "inner"):
            entry = self.mounted("inner", mountpoint)
            self.assertTrue(os.path.ismount(self.outer / "inner"))
            format_and_mount.unmount_volume(self.journal, entry, present=True)

# SPDX-License-Identifier: Apache-2.0
"""Tests of restoring the volumes of a host after a reboot.

A reboot is simulated: daemons are killed, loop devices and mounts are removed, as at the end of
the kernel; the journal and its directory stay.
"""

from importlib import metadata
import os
from pathlib import Path
import subprocess
import sys
import time
import unittest

from attachd.agent import restore
from attachd.agent.connectors.qemu import loop_devices, state_dir, storage_daemon
from attachd.agent.host import Host, Identity
from attachd.agent.journal import DEFAULT_STATE_PATH, Entry, Step
from attachd.agent.mount import format_and_mount, mounts
from attachd.agent.restore import Verdict
from attachd.tests.fixtures import processes, requirements
from attachd.tests.fixtures.user_space_devices import (
    UserSpaceDeviceCase,
    list_orphans,
    processes_of,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

_RESTORER = """
import sys
from pathlib import Path
from attachd.agent import restore
from attachd.agent.host import Host, Identity
host = Host(Identity("h"), Path(sys.argv[1]), "user-space")
print("ready", flush=True)
restore.restore_host(host, lambda entry: entry.connection_info, print)
"""


class UnitTest(unittest.TestCase):
    """What systemd runs when a host starts."""

    def test_restore_unit_runs_existing_command_with_visible_mounts(self):
        path = processes.ROOT / "etc" / "systemd" / "attachd-local.service"
        lines = path.read_text().splitlines()
        settings = [line.split("=", 1) for line in lines if "=" in line and line[0] != "#"]
        program, name = dict(settings)["ExecStart"].split()
        self.assertEqual("attachd", Path(program).name)
        self.assertIn(name, metadata.entry_points(group="attachd.cli").names)
        alone = ("Private", "Protect", "ReadOnly", "ReadWrite", "Inaccessible", "MountFlags")
        self.assertEqual([], [name for name, _value in settings if name.startswith(alone)])
        folder = dict(settings)["ConditionDirectoryNotEmpty"]
        self.assertEqual(f"{DEFAULT_STATE_PATH / 'attachments'}", folder)


@full_only("agents")
class RestoringTest(UserSpaceDeviceCase):
    """A volume over iSCSI with a file system, mounted."""

    def setUp(self):
        super().setUp()
        for tool in ("losetup", "mkfs.ext4", "mount", "setpriv", "umount", "wipefs"):
            requirements.require_tool(self, tool)
        self.host = Host(Identity("h"), self.folder, "user-space")
        self.journal = self.host.journal
        self.mountpoint = str(self.folder / "mounted here")
        self.progress = []

    def test_restore_after_reboot_reconnects_attached_volumes(self):
        entry = self.attached()
        self.assertEqual([(Verdict.OK, "")], self.verdicts(restore.check_host(self.host)))
        self.reboot(entry)
        self.assertEqual([(Verdict.MISSING, "")], self.verdicts(restore.check_host(self.host)))
        for _ in range(2):
            self.assertEqual([(Verdict.OK, "")], self.verdicts(self.restore()))
            self.assertEqual("data", (Path(self.mountpoint) / "file").read_text())
        self.assertEqual(1, len(self.tgtd.sessions()))

    def test_restore_does_not_connect_deleted_attachments(self):
        entry = self.attached()
        self.reboot(entry)
        found = restore.restore_host(self.host, lambda _entry: None, self.progress.append)
        self.assertEqual([(Verdict.DELETED, "")], self.verdicts(found))
        self.assertEqual([], self.journal.list_entries())
        self.assert_nothing_is_left()

    def test_restore_disconnects_devices_of_deleted_attachments(self):
        self.attached()
        with (Path(self.mountpoint) / "file").open():
            found = restore.restore_host(self.host, lambda _entry: None, self.progress.append)
            self.assertRegex(found[0].error, "in use by process")
            self.assertTrue(os.path.ismount(self.mountpoint))
        found = restore.restore_host(self.host, lambda _entry: None, self.progress.append)
        self.assertEqual([(Verdict.DELETED, "")], self.verdicts(found))
        self.assertEqual([], self.journal.list_entries())
        self.assert_nothing_is_left()

    def test_restore_without_api_connects_nothing(self):
        def silent(_entry):
            raise TimeoutError("no answer")

        entry = self.attached()
        self.reboot(entry)
        (found,) = restore.restore_host(self.host, silent, self.progress.append)
        self.assertRegex(found.error, "was not connected.*no answer.*attachd local-restore")
        self.assertEqual([], self.tgtd.sessions())
        self.assertEqual([(Verdict.OK, "")], self.verdicts(self.restore()))

    def test_restore_killed_can_be_repeated(self):
        entry = self.attached()
        for delay in (0, 0.1, 0.2, 0.4, 0.8):
            self.reboot(self.journal.get(entry.id))
            words = [sys.executable, "-W", "ignore", "-c", _RESTORER, str(self.folder)]
            restorer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            try:
                restorer.stdout.readline()
                time.sleep(delay)  # until anywhere in its work: what follows is the same
            finally:
                restorer.kill()
                restorer.communicate()
            self.assertEqual([(Verdict.OK, "")], self.verdicts(self.restore()), delay)
            self.assertEqual("data", (Path(self.mountpoint) / "file").read_text())
            self.assertEqual(1, len(self.tgtd.sessions()))

    def test_restore_after_killed_daemon_keeps_mounted_device(self):
        entry = self.attached()
        storage_daemon.kill(self.place_of(entry))
        for _ in range(2):
            (found,) = self.restore()
            self.assertEqual(Verdict.MISSING, found.verdict)
            self.assertRegex(found.error, "has lost.*the mount at .*local-detach --force")
            # Nothing was cleared, and nothing was forgotten.
            self.assertTrue(os.path.ismount(self.mountpoint))
            (loop,) = loop_devices.list_over(storage_daemon.image_file(self.place_of(entry)))
            self.assertEqual((entry.device.path, False), (loop.path, loop.closing))
            (stored,) = self.journal.list_entries()
            self.assertEqual((entry.device, Step.ATTACHED), (stored.device, stored.step))
            self.assertEqual(found.error, stored.error)
        subprocess.run(["umount", self.mountpoint], check=True)
        self.assertEqual([(Verdict.OK, "")], self.verdicts(self.restore()))
        self.assertEqual("data", (Path(self.mountpoint) / "file").read_text())
        self.assertIsNone(self.journal.get(entry.id).error)

    def test_restore_after_killed_daemon_reconnects_reader(self):
        entry = self.attached()
        mounts.unmount(self.mountpoint)
        self.host.connector.disconnect(entry.connection_info, entry.options, entry.device)
        info = {**entry.connection_info, "access_mode": "ro"}
        entry = self.host.connect(self.journal.write(entry, mode="ro", connection_info=info))
        entry = format_and_mount.mount_volume(self.journal, entry, self.progress.append, mode="ro")
        self.journal.write(entry, step=Step.ATTACHED)
        with (Path(self.mountpoint) / "file").open():
            storage_daemon.kill(self.place_of(entry))
            self.assertRegex(self.restore()[0].error, f"in use by process {os.getpid()}")
        self.assertEqual([(Verdict.OK, "")], self.verdicts(self.restore()))
        self.assertEqual("data", (Path(self.mountpoint) / "file").read_text())

    def test_restore_after_killed_daemon_reports_lost_writes(self):
        entry = self.attached()
        mounts.unmount(self.mountpoint)
        entry = self.journal.write(entry, mountpoint=None)
        with Path(entry.device.path).open("r+b", buffering=0) as device:
            storage_daemon.kill(self.place_of(entry))
            device.write(b"lost" * 1024)
        for _ in range(2):
            (found,) = self.restore()
            self.assertRegex(found.error, "Not all that was written is on the volume.*--force")
        self.assertEqual([entry.device.path], [found.path])
        self.host.disconnect(self.journal.get(entry.id), force=True)
        self.assert_nothing_is_left()

    def test_restore_reports_device_without_journal_entry(self):
        entry = self.attached()
        mounts.unmount(self.mountpoint)
        self.journal.remove(entry)
        (found,) = self.restore()
        self.assertEqual((Verdict.UNKNOWN, entry.device.path), (found.verdict, found.path))
        subprocess.run(["sh", "-c", found.advice], check=True)
        wait_until(lambda: not processes_of(self.folder), lambda: processes_of(self.folder))
        self.assertEqual([], restore.check_host(self.host))

    def test_restore_ignores_unfinished_operations(self):
        for step in (Step.MOUNTING, Step.DISCONNECTING):
            entry = self.journal.write(Entry("v", mountpoint=self.mountpoint), step=step)
            self.restore()
            self.assertEqual([entry], self.journal.list_entries())
            self.journal.remove(entry)
        self.assertEqual([], list_orphans(self.folder))

    def attached(self):
        """Attach the volume, with a file in it."""
        _export, info = self.export(self.host.connector)
        self.addCleanup(
            subprocess.run, ["umount", self.mountpoint], capture_output=True, check=False
        )
        entry = Entry(self.volume.id, attachment_id=info["attachment_id"])
        entry = self.host.connect(self.journal.write(entry, connection_info=info))
        subprocess.run(["mkfs.ext4", "-q", entry.device.path], check=True)
        entry = self.journal.write(entry, mountpoint=self.mountpoint)
        entry = format_and_mount.mount_volume(self.journal, entry, self.progress.append, mode="rw")
        (Path(self.mountpoint) / "file").write_text("data")
        subprocess.run(["sync", "-f", self.mountpoint], check=True)
        return self.journal.write(entry, step=Step.ATTACHED)

    def reboot(self, entry):
        """Leave what a host has when it starts: its journal, and files of daemons."""
        subprocess.run(["umount", self.mountpoint], check=False, capture_output=True)
        folder = self.place_of(entry)
        image = storage_daemon.image_file(folder)
        for item in loop_devices.list_over(image):
            subprocess.run(["losetup", "--detach", item.path], check=True)
        storage_daemon.kill(folder)
        subprocess.run(["umount", "--lazy", image], check=False, capture_output=True)
        wait_until(lambda: not self.tgtd.sessions())

    def place_of(self, entry):
        return state_dir.path_for(self.folder, entry.connection_info)

    def restore(self):
        return restore.restore_host(
            self.host, lambda item: item.connection_info, self.progress.append
        )

    @staticmethod
    def verdicts(found):
        return [(item.verdict, item.error or item.advice) for item in found]

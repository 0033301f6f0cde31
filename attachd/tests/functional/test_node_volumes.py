# SPDX-License-Identifier: Apache-2.0
"""Staged and published volumes on real devices: repeated, refused, in use, and killed."""

import dataclasses
import os
from pathlib import Path
import subprocess
from unittest import mock
import uuid

from attachd import exception
from attachd.agent.connectors.base import Device
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.mount import mounts
from attachd.agent.mount.mount_rules import DEFAULTS
from attachd.agent.staging import Publication, Staging
from attachd.linux import block_device, mountinfo
from attachd.linux.commands import CommandResult
from attachd.node import volumes
from attachd.node.volumes import NodeVolumes, Problem, Refused, Target
from attachd.tests.fixtures import fake_host, fork_crash
from attachd.tests.fixtures.loop_devices import MIB, LoopDeviceCase
from attachd.tests.selection import full_only

_INFO = {"driver_volume_type": "loop"}
_POINTS = 20


class _LoopConnector(fake_host.FileConnector):
    def is_present(self, _info, device):
        return block_device.exists(device.path)

    def disconnect(self, _info, _options, _device, *, force=False):
        """Leave the device to the test."""


class NodeVolumesCase(LoopDeviceCase):
    """A host with one attachment, whose device is empty."""

    def setUp(self):
        super().setUp()
        connector = _LoopConnector(self.folder)
        with mock.patch("attachd.agent.host.make_connector", return_value=connector):
            self.host = Host(Identity("node-1"), self.folder / "host")
        self.journal = self.host.journal
        self.volumes = NodeVolumes(self.host)
        self.path = self.place("staging")
        self.targets = [self.place(f"target{number}") for number in range(2)]
        self.use(self.device(64 * MIB))

    def use(self, device, mode="rw"):
        """Have one attachment, with this device."""
        self.volume_id, self.attachment_id = (f"{uuid.uuid4()}" for _ in range(2))
        self.disk = device
        self.target = Target(self.volume_id, self.attachment_id, device, mode)
        self.entry_id = self.journal.write(
            Entry(
                self.volume_id,
                Owner.AGENT,
                Step.ATTACHED,
                attachment_id=self.attachment_id,
                connection_info=_INFO,
                device=Device(device, {}),
            )
        ).id

    @property
    def entry(self):
        return self.journal.get(self.entry_id)

    def staging(self, fs_type="ext4", **values):
        return Staging(self.path, fs_type, **values)

    def stage(self, staging=None):
        self.volumes.stage(self.target, staging or self.staging(), assume_empty=True)

    def publish(self, number=0, staging=None, *, read_only=False):
        publication = Publication(self.targets[number], read_only)
        self.volumes.publish(self.volume_id, staging or self.staging(), publication)

    def unpublish(self, number=0):
        self.volumes.unpublish(self.volume_id, self.targets[number])

    def unstage(self):
        self.volumes.unstage(self.volume_id, self.path)

    def file(self, number=0):
        return Path(self.targets[number]) / "file"

    def assert_clean(self):
        """Check that nothing is mounted, and that the entry is as the agent has made it."""
        for path in (self.path, *self.targets):
            self.assertIsNone(mountinfo.find_at(path))
        for path in self.targets:
            self.assertFalse(os.path.lexists(path))
        entry = self.entry
        expected = (None, None, None, None, DEFAULTS, Step.ATTACHED, ())
        found = (entry.staging, entry.mountpoint, entry.mkfs, entry.formatting)
        self.assertEqual(expected, (*found, entry.mount_rules, entry.step, entry.made_directories))

    def assert_refused(self, problem, call, *arguments, **named):
        with self.assertRaises(Refused) as raised:
            call(*arguments, **named)
        self.assertEqual(problem, raised.exception.problem, f"{raised.exception}")

    def live(self, fs_type, read_back):
        """Let a volume be used by two containers, each call twice, and check its file."""
        staging = self.staging(fs_type)
        for _ in range(2):
            self.stage(staging)
        for _ in range(2):
            self.publish(0, staging)
            self.publish(1, staging, read_only=True)
        if read_back is None:
            self.file().write_text("data")
        self.assertEqual("data", self.file(1).read_text())
        with self.assertRaises(OSError):
            self.file(1).write_text("more")
        self.assertIn("nosuid", mountinfo.find_at(self.targets[1]).options)
        self.assertEqual(
            [*map(Publication, self.targets, (False, True))], [*self.entry.staging.publications]
        )
        for _ in range(2):
            self.unpublish(0)
            self.unpublish(1)
        for _ in range(2):
            self.unstage()
        self.assert_clean()


class NodeVolumesTest(NodeVolumesCase):
    def test_data_of_ext4_is_there_after_next_stage(self):
        self.live("ext4", None)
        self.live("ext4", "data")

    def test_device_is_published_as_it_is_and_kept_by_agent(self):
        staging = self.staging(None)
        for _ in range(2):
            self.stage(staging)
            self.publish(0, staging)
        self.assertTrue(Path(self.targets[0]).is_block_device())
        with Path(self.targets[0]).open("r+b") as device:
            device.write(b"data")
        self.assertEqual(b"data", Path(self.disk).read_bytes()[:4])
        with self.assertRaisesRegex(exception.DeviceBusy, "a container"):
            self.host.disconnect(self.entry)
        self.assert_refused(Problem.CONFLICTS, self.publish, 1, staging, read_only=True)
        for _ in range(2):
            self.unpublish()
            self.unstage()
        self.assert_clean()
        self.host.disconnect(self.entry)

    def test_device_with_data_is_never_formatted(self):
        Path(self.disk).write_bytes(b"x" * MIB)
        content = Path(self.disk).read_bytes()
        before = self.disk
        with self.assertRaisesRegex(exception.HostError, "carries data"):
            self.volumes.stage(self.target, self.staging())
        self.use(self.formatted("ext4"))
        with self.assertRaisesRegex(exception.HostError, "carries ext4"):
            self.stage(self.staging("xfs"))
        self.assert_clean()
        self.assertEqual(content, Path(before).read_bytes())

    def test_stage_for_reading_makes_no_file_system(self):
        with self.assertRaisesRegex(exception.HostError, "has no file system"):
            self.stage(self.staging(read_only=True))
        self.assert_clean()

    def test_volume_that_is_attached_read_only_is_staged_so(self):
        self.use(self.formatted("ext4"), mode="ro")
        for _ in range(2):
            self.stage()
            self.publish(read_only=True)
        self.assertTrue(self.entry.staging.read_only)
        self.assert_refused(Problem.CONFLICTS, self.publish, 1)
        with self.assertRaises(OSError):
            self.file().write_text("data")
        self.unpublish()
        self.unstage()
        self.assert_clean()

    def test_failed_mount_leaves_nothing(self):
        with self.assertRaisesRegex(exception.HostError, "cannot be mounted"):
            self.stage(self.staging(options="no_such_option"))
        self.assert_clean()
        self.stage()
        self.unstage()

    def test_publication_in_use_stays(self):
        self.stage()
        self.publish()
        with self.file().open("w"), self.assertRaisesRegex(exception.DeviceBusy, "process"):
            self.unpublish()
        self.assertIsNotNone(self.entry.staging.find(self.targets[0]))
        self.unpublish()
        self.unstage()

    def test_call_during_other_work_is_refused(self):
        self.enterContext(mock.patch.object(volumes, "LOCK_TIMEOUT", 0))
        with self.journal.volume_lock(self.volume_id):
            for call in (self.stage, self.publish, self.unpublish, self.unstage):
                with self.assertRaises(exception.LocalConflict):
                    call()
        self.journal.write(self.entry, step=Step.CONNECTING)
        with self.assertRaises(exception.LocalConflict):
            self.stage()


@full_only("containers")
class OtherUsesTest(NodeVolumesCase):
    """Other file systems, uses that exclude each other, and what is in the way."""

    def test_data_of_xfs_is_there_after_next_stage(self):
        self.use(self.device(320 * MIB))
        self.live("xfs", None)
        self.live("xfs", "data")

    def test_agent_keeps_device_of_staged_volume(self):
        self.stage()
        with self.assertRaisesRegex(exception.DeviceBusy, self.path):
            self.host.disconnect(self.entry)
        self.unstage()

    def test_other_mount_in_staging_directory_is_kept_until_unstage(self):
        other = self.formatted("ext4")
        mounts.mount(other, self.path, mode="rw")
        self.assert_refused(Problem.UNCLEAN, self.stage)
        self.assertTrue(mounts.is_mounted(other, self.path))
        self.unstage()
        self.assert_clean()

    def test_other_uses_are_refused(self):
        self.stage()
        self.assert_refused(Problem.DIFFERS, self.stage, self.staging(options="noatime"))
        self.assert_refused(
            Problem.CONFLICTS, self.stage, Staging(f"{self.folder}/elsewhere", "ext4")
        )
        self.publish()
        self.assert_refused(Problem.DIFFERS, self.publish, read_only=True)
        self.assert_refused(Problem.DIFFERS, self.publish, 0, self.staging("xfs"))
        self.assert_refused(Problem.CONFLICTS, self.publish, 1, self.staging("xfs"))
        self.assert_refused(Problem.CONFLICTS, self.unstage)
        self.unpublish()
        self.unstage()
        self.assert_refused(Problem.NOT_STAGED, self.publish)
        self.assert_clean()

    def test_exclusive_volume_is_published_once(self):
        staging = self.staging(exclusive=True)
        self.stage(staging)
        for _ in range(2):
            self.publish(0, staging)
        self.assert_refused(Problem.CONFLICTS, self.publish, 1, staging)
        self.unpublish(0)
        self.publish(1, staging)
        self.unpublish(1)
        self.unstage()

    def test_publication_without_journal_is_removed(self):
        self.stage()
        self.publish()
        self.journal.remove(self.entry)
        for _ in range(2):
            self.unpublish()
            self.unstage()
        for path in (self.path, *self.targets):
            self.assertIsNone(mountinfo.find_at(path))

    def test_target_with_content_is_kept(self):
        self.file().parent.mkdir()
        self.file().write_text("data")
        with self.assertRaisesRegex(exception.HostError, "not empty"):
            self.unpublish()
        self.assertEqual("data", self.file().read_text())
        link = Path(self.targets[1])
        link.symlink_to("/")
        self.stage()
        with self.assertRaisesRegex(exception.HostError, "symbolic link"):
            self.publish(1)
        self.unstage()

    def test_file_system_grows_while_it_is_published(self):
        self.use(self.device(320 * MIB))
        staging = self.staging("xfs")
        self.stage(staging)
        self.publish(0, staging)
        before = os.statvfs(self.targets[0]).f_blocks
        os.truncate(self.file_of(self.disk), 1024 * MIB)
        self.run_tool("losetup", "--set-capacity", self.disk)
        for _ in range(2):
            self.volumes.grow(self.volume_id, self.targets[0])
        self.assertGreater(os.statvfs(self.targets[0]).f_blocks, 2 * before)
        self.unpublish()
        self.unstage()
        self.assert_refused(Problem.NOT_STAGED, self.volumes.grow, self.volume_id, self.path)


@full_only("containers")
class GroupTest(NodeVolumesCase):
    """A group that a container has beside its own reads and writes all files."""

    GROUP = 40_000

    def setUp(self):
        super().setUp()
        self.folder.chmod(0o711)  # Other users of the host enter the targets.
        self.stage()
        self.publish()
        self.file().write_text("data")
        self.file().chmod(0o600)
        self.unpublish()
        self.unstage()

    def stage_for_group(self, group=GROUP):
        self.volumes.stage(self.target, self.staging(), assume_empty=True, group=group)

    def publish_for_group(self, number=0, group=GROUP, **named):
        publication = Publication(self.targets[number], **named)
        self.volumes.publish(self.volume_id, self.staging(), publication, group=group)

    def access(self, group=GROUP):
        """Write to each file, and create one, as a user who has a group."""
        folder = self.targets[0]
        script = f"echo more >> {folder}/file && mkdir -p {folder}/new && ls -ldn {folder}/new"
        line = ["setpriv", "--reuid=50000", "--regid=50000", f"--groups={group}"]
        return subprocess.run(
            [*line, "sh", "-c", script], check=False, capture_output=True, text=True
        )

    def test_group_writes_and_its_new_files_are_its_own(self):
        self.publish_after_stage(None)
        self.assertNotEqual(0, self.access().returncode)
        self.unpublish()
        self.unstage()
        self.publish_after_stage(self.GROUP)
        done = self.access()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(f"{self.GROUP}", done.stdout.split()[3])
        self.assertEqual("data" + "more\n", self.file().read_text())
        self.reverse()

    def publish_after_stage(self, group):
        for _ in range(2):
            self.stage_for_group(group)
            self.publish_for_group(group=group)

    def reverse(self):
        self.unpublish()
        self.unstage()
        self.assert_clean()

    def test_group_of_next_container_replaces_it(self):
        self.publish_after_stage(self.GROUP)
        self.publish_for_group(1, self.GROUP + 1)
        self.assertEqual(self.GROUP + 1, self.file().stat().st_gid)
        self.unpublish(1)
        self.reverse()

    def test_repeated_call_keeps_what_container_has_changed(self):
        self.publish_after_stage(self.GROUP)
        root = Path(self.targets[0])
        root.chmod(0o700)
        self.publish_after_stage(self.GROUP)
        self.assertEqual(0o40700, root.stat().st_mode)
        self.reverse()

    def test_read_only_volume_keeps_its_groups(self):
        self.target = dataclasses.replace(self.target, mode="ro")
        for _ in range(2):
            self.stage_for_group()
            self.publish_for_group(read_only=True)
        self.assertNotEqual(self.GROUP, self.file().stat().st_gid)
        self.reverse()

    def test_other_mount_and_immutable_file_stay(self):
        self.stage()
        immutable, below = Path(self.path) / "immutable", Path(self.path) / "below"
        immutable.touch()
        below.mkdir()
        self.run_tool("chattr", "+i", f"{immutable}")
        self.run_tool("mount", "-t", "tmpfs", "none", f"{below}")
        (below / "file").touch()
        with self.assertLogs("attachd.agent.mount.group_access", "WARNING") as logged:
            self.stage_for_group()
        self.assertIn("1 files", logged.output[0])
        self.assertNotEqual(self.GROUP, (below / "file").stat().st_gid)
        self.run_tool("umount", f"{below}")
        self.run_tool("chattr", "-i", f"{immutable}")
        self.unstage()
        self.assert_clean()

    def test_failed_change_is_repeated(self):
        self.stage()
        with mock.patch("attachd.linux.commands.execute") as execute:
            execute.return_value = CommandResult(1, "", "Input/output error")
            self.assert_refused(Problem.UNCLEAN, self.stage_for_group)
            self.assert_refused(Problem.UNCLEAN, self.publish_for_group)
        self.assertFalse(os.path.lexists(self.targets[0]))
        self.publish_after_stage(self.GROUP)
        self.assertEqual(self.GROUP, self.file().stat().st_gid)
        self.reverse()


@full_only("containers")
class KilledTest(NodeVolumesCase):
    """A process is killed at each step; the same call, or its reversal, follows."""

    def kill_at_each_step(self, act, prepare=lambda: None):
        """Yield after each kill of a process that does something.

        :param prepare: called before each
        """
        note = self.folder / "note"
        for number in range(_POINTS):
            self.use(self.device(16 * MIB))
            prepare()
            if not fork_crash.crash_in_fork(number, note, act):
                self.assertGreater(number, 1, "hardly anything was tried")
                self.reverse()
                return
            with self.subTest(note.read_text()):
                yield
        self.fail("the work has no end")

    def reverse(self):
        self.unpublish()
        self.unstage()
        self.assert_clean()

    def lead(self, staging):
        def act():
            self.stage(staging)
            self.publish(0, staging)

        return act

    def test_killed_life_is_continued(self):
        for staging in (self.staging(), self.staging(None)):
            for _ in self.kill_at_each_step(self.lead(staging)):
                self.lead(staging)()
                if staging.fs_type is not None:
                    self.file().write_text("data")
                self.reverse()

    def test_killed_life_is_reversed(self):
        for staging in (self.staging(), self.staging(None)):
            for _ in self.kill_at_each_step(self.lead(staging)):
                self.reverse()
                self.lead(staging)()
                self.reverse()

    def test_killed_end_is_repeated_and_loses_no_data(self):
        def prepare():
            self.lead(self.staging())()
            self.file().write_text("data")

        for _ in self.kill_at_each_step(self.reverse, prepare):
            self.reverse()
            self.lead(self.staging())()
            self.assertEqual("data", self.file().read_text())
            self.reverse()

    def test_killed_end_is_followed_by_next_life(self):
        def prepare():
            self.lead(self.staging())()
            self.file().write_text("data")

        for _ in self.kill_at_each_step(self.reverse, prepare):
            self.lead(self.staging())()
            self.assertEqual("data", self.file().read_text())
            self.reverse()

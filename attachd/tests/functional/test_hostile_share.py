# SPDX-License-Identifier: Apache-2.0
"""Managers on a directory in which another machine replaces names.

Each name is replaced by a link into a directory of the manager's machine that has the same names,
where a manager that follows it would find all that it expects.
"""

import contextlib
import itertools
import os
import shutil
import uuid

import testtools

from attachd import exception
from attachd.drivers import base, loop
from attachd.drivers.file import FileDriver
from attachd.drivers.nfs.driver import NfsDriver
from attachd.tests.fixtures import hostile_names, lifetime, loop_devices, requirements
from attachd.tests.fixtures.user_space_devices import UserSpaceDeviceCase
from attachd.tests.selection import full_only

DISK = {"source-name": "disk.raw"}
FORMER = {"source-name": "then.raw"}
CALLS = 20
"""How many calls are made for each name that is swapped meanwhile."""


class HostileShareCase(testtools.TestCase):
    """A driver, its directory, and a directory of the machine with the same names."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.require_device(self, "/dev/loop-control")
        top = lifetime.temp_dir(self)
        self.folder, self.victim = top / "share", top / "victim"
        self.folder.mkdir()
        self.driver = self.make_driver(top)
        self.addCleanup(self.driver.close)
        self.driver.setup()
        self.volume, self.other = (base.VolumeRef(f"{uuid.uuid4()}", 1) for _ in range(2))
        self.export = base.Export(f"{uuid.uuid4()}", {"host": os.uname().nodename})
        self.prepare()
        self.addCleanup(self.revoke_all)
        shutil.copytree(self.folder, self.victim)
        self.before = hostile_names.snapshot(self.victim)

    def prepare(self):
        """Make what the calls need, as far as it is missing."""
        self.driver.create(self.volume)
        self.driver.grant(self.volume, self.export)
        disk = self.folder / "volumes" / "manageable" / "disk.raw"
        disk.write_bytes(b"data")
        former = self.folder / "volumes" / "snapshots" / "manageable" / "then.raw"
        former.write_bytes(b"data")

    def names(self):
        """Return the names on the share, from the root on."""
        exports = self.folder / "exports" / self.volume.id
        volumes = self.folder / "volumes"
        snapshots = volumes / "snapshots"
        return [
            *(snapshots, snapshots / "manageable", snapshots / "manageable" / "then.raw"),
            *(volumes, volumes / self.volume.id, volumes / "manageable"),
            *(volumes / "manageable" / "disk.raw", exports.parent, exports),
            exports / self.export.attachment_id,
        ]

    def calls(self):
        """Return a function for each kind of call of the manager."""
        driver, volume, other, export = self.driver, self.volume, self.other, self.export
        new = base.Export(f"{uuid.uuid4()}", export.connector)
        return {
            "setup": driver.setup,
            "stats": driver.get_stats,
            "create": lambda: driver.create(other),
            "create_again": lambda: driver.create(volume),
            "clone": lambda: driver.clone(other, volume),
            "extend": lambda: driver.extend(volume, 2, [export]),
            "grant": lambda: driver.grant(volume, new),
            "grant_again": lambda: driver.grant(volume, export),
            "list_exports": lambda: list(driver.list_exports()),
            "list_volume_exports": lambda: list(driver.list_volume_exports(volume)),
            "list_volumes": driver.list_volumes,
            "list_files": lambda: list(driver.existing.list()),
            "get_file": lambda: driver.existing.get(DISK),
            "manage": lambda: driver.existing.manage(other, DISK),
            "revoke": lambda: driver.revoke(volume, export, []),
            "revoke_new": lambda: driver.revoke(volume, new, []),
            "revoke_all_except": lambda: driver.revoke_all_except(volume, []),
            "unmanage": lambda: driver.existing.unmanage(volume),
            **self.calls_for_snapshots(),
            "delete": lambda: driver.delete(volume),
            "delete_other": lambda: driver.delete(other),
        }

    def calls_for_snapshots(self):
        driver, volume = self.driver, self.volume
        snapshot = base.SnapshotRef(f"{uuid.uuid4()}", volume, 1)
        return {
            "list_snapshot_files": lambda: list(driver.list_manageable_snapshots()),
            "get_snapshot_file": lambda: driver.get_manageable_snapshot(volume, FORMER),
            "manage_snapshot": lambda: driver.manage_snapshot(snapshot, FORMER),
            "unmanage_snapshot": lambda: driver.unmanage_snapshot(snapshot),
            "create_snapshot": lambda: driver.create_snapshot(snapshot),
            "delete_snapshot": lambda: driver.delete_snapshot(snapshot),
        }

    def call(self, function):
        """Call a function; it may refuse, and an error names what happened."""
        try:
            function()
        except exception.BackendError as error:
            return f"{error}"
        except exception.InvalidInput as error:
            return f"{error}"
        return ""

    def assert_nothing_has_changed(self, name, call):
        self.assertEqual(self.before, hostile_names.snapshot(self.victim), f"{call} at {name}")
        self.assertEqual([], loop.under(self.victim))

    def revoke_all(self):
        """Free all devices, also those whose file was swapped: this kernel knows its new name."""
        loop_devices.detach_under(self.folder)
        self.call(lambda: self.driver.revoke_all_except(self.volume, []))

    def restart(self):
        """Let the share be as it was."""
        self.revoke_all()
        for path in self.folder.iterdir():
            hostile_names.remove(path)
        self.driver.setup()
        self.prepare()


class ReplacedNames:
    """Tests of each driver."""

    def test_calls_with_a_name_that_is_a_link_change_nothing_elsewhere(self):
        for name, call in itertools.product(self.names(), self.calls()):
            counterpart = self.victim / name.relative_to(self.folder)
            aside = name.with_name("0-aside")
            name.rename(aside)
            name.symlink_to(counterpart)
            self.call(self.calls()[call])
            self.assert_nothing_has_changed(name, call)
            hostile_names.remove(name)
            with contextlib.suppress(FileNotFoundError):  # The call has removed the directory.
                aside.rename(name)
            self.restart_if_changed()

    def test_calls_with_a_name_of_another_kind_end_with_a_clear_error(self):
        volumes = self.folder / "volumes"
        name, former = volumes / self.volume.id, volumes / "snapshots" / "manageable" / "then.raw"
        expected = f"a regular file is expected|{self.volume.id}"
        self.check_calls(name, ("extend", "clone", "grant", "create_again"), expected)
        self.check_calls(former, ("manage_snapshot",), "It is no regular file")
        self.assert_nothing_has_changed(name, "all")

    def check_calls(self, name, calls, expected):
        """Check the errors of calls that find another kind of file at a name."""
        for kind, call in itertools.product(("fifo", "block device", "directory"), calls):
            name.unlink()
            hostile_names.KINDS[kind](name, self.victim / "file")
            self.assertRegex(self.call(self.calls()[call]), expected)
            hostile_names.remove(name)
            name.touch()

    def test_calls_while_names_are_swapped_change_nothing_elsewhere(self):
        for name in self.names():
            counterpart = self.victim / name.relative_to(self.folder)
            with hostile_names.swapping(name, counterpart):
                for number in range(CALLS):
                    calls = self.calls()
                    self.call(calls[sorted(calls)[number % len(calls)]])
            self.assert_nothing_has_changed(name, "all")
            self.restart()

    def restart_if_changed(self):
        expected = {path.relative_to(self.victim) for path in self.victim.rglob("*")}
        present = {path.relative_to(self.folder) for path in self.folder.rglob("*")}
        if expected != present:
            self.restart()


@full_only("storage")
class NfsDriverTest(ReplacedNames, HostileShareCase):
    """The driver nfs, whose share is a directory that is mounted already."""

    def make_driver(self, top):
        mount_point = top / "mnt"
        mount_point.mkdir()
        requirements.share_mounts(self)
        hostile_names.bind(self, self.folder, mount_point)
        options = {"nfs_share": "127.0.0.1:/volumes", "nfs_mount_point": f"{mount_point}"}
        return UserSpaceDeviceCase.driver_of(NfsDriver, options)


@full_only("storage")
class FileDriverTest(ReplacedNames, HostileShareCase):
    """The driver file with loop devices, on a directory that other machines mount."""

    def make_driver(self, top):
        options = {"file_folder": f"{self.folder}", "file_devices_dir": f"{top / 'devices'}"}
        return UserSpaceDeviceCase.driver_of(FileDriver, options)

    def rename_link(self, other):
        """Give the link of the export the name of another one, and return its device."""
        info = self.driver.grant(self.volume, self.export)
        link = self.driver._link(self.volume, self.export)
        target = self.driver._link(self.other, other)
        target.parent.mkdir()
        link.rename(target)
        return os.path.realpath(info["data"]["device_path"]), target

    def test_device_over_a_renamed_link_is_found_until_it_is_gone(self):
        other = base.Export(f"{uuid.uuid4()}", self.export.connector)
        device, _target = self.rename_link(other)
        with open(device, "rb"):  # noqa: PTH123  (a device)
            for revoke in (
                lambda: self.driver.revoke(self.volume, self.export, []),
                lambda: self.driver.revoke_all_except(self.volume, []),
            ):
                self.assertIn("still mounted or open", self.call(revoke))
        self.driver.revoke_all_except(self.volume, [])
        self.assertEqual([], loop.under(self.folder))

    def test_device_over_a_renamed_link_is_not_of_the_attachment_with_that_name(self):
        other = base.Export(f"{uuid.uuid4()}", self.export.connector)
        (self.folder / "volumes" / self.volume.id).write_bytes(b"secret")
        device, target = self.rename_link(other)
        target.unlink()
        self.driver.create(self.other)
        info = self.driver.grant(self.other, other)
        self.addCleanup(self.driver.revoke, self.other, other, [])
        self.assertNotEqual(device, os.path.realpath(info["data"]["device_path"]))

    def test_device_over_a_renamed_link_is_listed_by_its_volume(self):
        self.rename_link(base.Export(f"{uuid.uuid4()}", self.export.connector))
        (self.folder / "volumes" / self.other.id).touch()
        listed = {
            export.volume_id: export.holders
            for export in self.driver.list_exports()
            if export.mode and export.holders
        }
        self.assertEqual({self.volume.id}, set(listed))

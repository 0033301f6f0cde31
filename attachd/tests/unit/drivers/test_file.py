# SPDX-License-Identifier: Apache-2.0
"""Modes, links and files in use of the file driver; tests/contract has the rest."""

from pathlib import Path
import stat
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, file, loop
from attachd.linux import boot
from attachd.tests.fixtures import lifetime, requirements
from attachd.tests.unit.drivers import configured
from attachd.tests.wait import TIMEOUT

VOLUME = base.VolumeRef("8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11", 1)
FIRST = base.Export("57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd01", {"host": "here"})
SECOND = base.Export("57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd02", {"host": "here"})


class FileDriverCase(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.folder = folder / "files"
        self.devices = folder / "devices"

    def driver(self, loop_devices="never", **options):
        driver = configured.driver(
            file.FileDriver,
            file_folder=f"{self.folder}",
            file_loop_devices=loop_devices,
            file_devices_dir=f"{self.devices}",
            **options,
        )
        driver.setup()
        return driver


class SetupTest(FileDriverCase):
    def deny_loop_devices(self):
        self.enterContext(mock.patch.object(loop, "unavailable", return_value="not permitted"))

    def test_default_folder_is_below_state_path(self):
        driver = configured.driver(file.FileDriver)
        self.assertEqual("/var/lib/attachd/files", driver.options.file_folder)

    def test_setup_with_auto_without_loop_devices_warns(self):
        self.deny_loop_devices()
        with self.assertLogs(file.__name__, "WARNING"):
            driver = self.driver("auto")
        self.assertFalse(driver.promises.read_only_enforced)

    def test_setup_with_always_without_loop_devices_raises(self):
        self.deny_loop_devices()
        with self.assertRaisesRegex(exception.BackendError, "file_loop_devices.*permitted"):
            self.driver("always")

    def boot(self, boot_id):
        path = self.folder.parent / "boot_id"
        self.enterContext(mock.patch.object(boot, "ID_FILE", path))
        path.write_text(f"{boot_id}\n")

    def test_setup_without_recorded_boot_keeps_device_names(self):
        self.enterContext(mock.patch.object(loop, "unavailable", return_value=""))
        self.devices.mkdir()
        name = self.devices / FIRST.attachment_id
        name.symlink_to("/dev/loop3")
        record = self.devices / ".boot_id"
        self.boot("first")
        for prepare in (lambda: record.unlink(missing_ok=True), lambda: record.write_text("")):
            prepare()
            self.driver("always")
            self.assertTrue(name.is_symlink())
            self.assertEqual("first\n", record.read_text())

    def test_setup_after_boot_keeps_names_of_devices_over_their_link(self):
        self.enterContext(mock.patch.object(loop, "unavailable", return_value=""))
        self.boot("first")
        self.driver("always")
        names = [self.devices / export.attachment_id for export in (FIRST, SECOND)]
        for name in names:
            name.symlink_to("/dev/loop3")
        self.boot("second")
        link = self.folder / "exports" / VOLUME.id / FIRST.attachment_id
        bound = [(link, loop.LoopDevice("/dev/loop3", "rw", closing=False))]
        with mock.patch.object(loop, "under", return_value=bound):
            self.driver("always")
        self.assertEqual([True, False], [name.is_symlink() for name in names])

    def test_setup_removes_device_names_of_earlier_boot(self):
        self.enterContext(mock.patch.object(loop, "unavailable", return_value=""))
        self.boot("first")
        self.driver("always")
        name = self.devices / FIRST.attachment_id
        name.symlink_to("/dev/loop3")
        self.driver("always")
        self.assertTrue(name.is_symlink())
        self.boot("second")
        with self.assertLogs(file.__name__, "WARNING") as logged:
            self.driver("always")
        self.assertFalse(name.is_symlink())
        self.assertIn(f"{name} of an earlier boot", logged.output[0])

    def test_setup_with_unusable_devices_folder_names_it(self):
        self.enterContext(mock.patch.object(loop, "unavailable", return_value=""))
        self.devices.mkdir()
        (self.devices / ".boot_id").mkdir()  # stands for a directory that cannot be written
        with self.assertRaisesRegex(exception.BackendError, f"{self.devices} cannot be used"):
            self.driver("always")

    def test_setup_with_never_does_not_probe_loop_devices(self):
        with mock.patch.object(loop, "unavailable", side_effect=AssertionError):
            self.driver("never")


class HostsTest(FileDriverCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch("socket.gethostname", return_value="Here.example.org"))

    def test_check_connector_accepts_only_this_machine(self):
        driver = self.driver()
        for host in ("Here.example.org", "here", "HERE.example.org"):
            driver.check_connector({"host": host})
        for host in ("there", "her", "here.example.com", "here.example", "", None):
            with self.assertRaisesRegex(exception.InvalidInput, "file_hosts.*connector.host"):
                driver.check_connector({"host": host})

    def test_check_connector_logs_name_of_machine_and_does_not_return_it(self):
        with (
            self.assertLogs(file.__name__, "INFO") as logged,
            self.assertRaises(exception.InvalidInput) as refused,
        ):
            self.driver().check_connector({"host": "there"})
        self.assertNotIn("Here", f"{refused.exception}")
        self.assertIn(
            "'there' of a connector; this machine is Here.example.org", logged.output[-1]
        )

    def test_check_connector_accepts_configured_hosts(self):
        driver = self.driver(file_hosts=["there"])
        driver.check_connector({"host": "there"})
        self.assertRaises(exception.InvalidInput, driver.check_connector, {"host": "elsewhere"})
        self.driver(file_hosts=["*"]).check_connector({"host": "elsewhere"})


class PlainFilesTest(FileDriverCase):
    def setUp(self):
        super().setUp()
        self.plain = self.driver()
        self.plain.create(VOLUME)

    def test_grant_creates_link_per_attachment(self):
        paths = [
            Path(self.plain.grant(VOLUME, export)["data"]["device_path"])
            for export in (FIRST, SECOND)
        ]
        self.assertEqual([FIRST.attachment_id, SECOND.attachment_id], [p.name for p in paths])
        self.assertTrue(paths[0].samefile(paths[1]))

    def test_links_and_folders_are_private(self):
        link = Path(self.plain.grant(VOLUME, FIRST)["data"]["device_path"])
        for path, mode in ((link, 0o600), (link.parent, 0o700), (link.parent.parent, 0o700)):
            self.assertEqual(mode, stat.S_IMODE(path.stat().st_mode), path)

    def test_revoke_of_open_file_raises_until_closed(self):
        link = Path(self.plain.grant(VOLUME, FIRST)["data"]["device_path"])
        for mode in ("rb", "r+b"):
            with link.open(mode), self.assertRaisesRegex(exception.BackendError, "open") as caught:
                self.plain.revoke(VOLUME, FIRST, [])
            self.assertFalse(caught.exception.final)
            self.assertTrue(link.exists())
        self.plain.revoke(VOLUME, FIRST, [])
        self.assertFalse(link.exists())

    def test_revoke_with_file_open_by_other_attachment_succeeds(self):
        self.plain.grant(VOLUME, FIRST)
        link = Path(self.plain.grant(VOLUME, SECOND)["data"]["device_path"])
        with link.open("r+b"):
            self.plain.revoke(VOLUME, FIRST, [SECOND])
        left = base.BackendExport(VOLUME.id, "rw", frozenset([SECOND.attachment_id]))
        self.assertEqual([left], list(self.plain.list_exports()))

    def test_revoke_without_file_leases_succeeds(self):
        self.plain.grant(VOLUME, FIRST)
        with mock.patch.object(file.fcntl, "fcntl", side_effect=OSError(22, "Invalid argument")):
            self.plain.revoke(VOLUME, FIRST, [])
        self.assertEqual([], list(self.plain.list_exports()))

    def test_boot_id_without_loop_devices_is_empty(self):
        self.assertEqual("", self.plain.boot_id())

    def test_grant_returns_local_connection_info(self):
        info = self.plain.grant(VOLUME, FIRST)
        self.assertEqual("local", info["driver_volume_type"])
        self.assertEqual("rw", info["data"]["access_mode"])

    def test_unusable_devices_folder_does_not_fail_plain_files(self):
        self.devices.write_bytes(b"not a folder")
        self.plain.grant(VOLUME, FIRST)
        self.plain.revoke(VOLUME, FIRST, [])
        self.assertEqual([], list(self.plain.list_exports()))


class LoopDevicesTest(FileDriverCase):
    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        self.enterContext(mock.patch.object(loop, "_DETACH_SECONDS", TIMEOUT))
        requirements.require_device(self, "/dev/loop-control")
        self.loops = self.driver("always")
        self.loops.create(VOLUME)
        self.link = self.folder / "exports" / VOLUME.id / FIRST.attachment_id
        self.addCleanup(loop.detach, self.link)

    def test_loop_device_has_backing_file_of_attachment(self):
        path = Path(self.loops.grant(VOLUME, FIRST)["data"]["device_path"])
        device = path.resolve().name
        backing_file = Path("/sys/block", device, "loop/backing_file").read_text().strip()
        self.assertEqual(f"{self.link}", backing_file)

    def test_device_name_is_public_and_device_is_private(self):
        name = Path(self.loops.grant(VOLUME, FIRST)["data"]["device_path"])
        self.assertEqual(self.devices / FIRST.attachment_id, name)
        self.assertEqual(0o711, stat.S_IMODE(name.parent.stat().st_mode))
        self.assertEqual(0, stat.S_IMODE(name.stat().st_mode) & 0o007)

    def test_revoke_removes_device_name(self):
        name = Path(self.loops.grant(VOLUME, FIRST)["data"]["device_path"])
        self.loops.revoke(VOLUME, FIRST, [])
        self.assertFalse(name.is_symlink())

    def test_stale_device_name_is_removed_when_device_is_reused(self):
        name = Path(self.loops.grant(VOLUME, FIRST)["data"]["device_path"])
        taken = f"{name.resolve()}"
        # The device is freed with losetup, and the next export gets it.
        loop.detach(self.link)
        with mock.patch.object(loop, "attach", return_value=loop.LoopDevice(taken, "rw", False)):
            other = Path(self.loops.grant(VOLUME, SECOND)["data"]["device_path"])
        self.assertEqual(taken, f"{other.readlink()}")
        self.assertFalse(name.is_symlink())
        self.assertEqual(f"{name}", self.loops.grant(VOLUME, FIRST)["data"]["device_path"])

    def test_grant_during_failed_revoke_returns_other_device(self):
        going = Path(self.loops.grant(VOLUME, FIRST)["data"]["device_path"]).resolve()
        with going.open("rb"), mock.patch.object(loop, "_DETACH_SECONDS", 0.1):
            with self.assertRaises(exception.BackendError):
                self.loops.revoke(VOLUME, FIRST, [])
            fresh = self.loops.grant(VOLUME, FIRST)["data"]["device_path"]
        self.assertNotEqual(going, Path(fresh).resolve())
        with Path(fresh).open("rb") as device:
            self.assertEqual(bytes(512), device.read(512))

    def test_boot_id_with_loop_devices_is_that_of_kernel(self):
        self.assertEqual(boot.read_id(), self.loops.boot_id())

    def test_revoke_by_driver_without_loop_devices_frees_device(self):
        self.loops.grant(VOLUME, FIRST)
        self.driver("never").revoke(VOLUME, FIRST, [])
        self.assertEqual([], loop.find(self.link))

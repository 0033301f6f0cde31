# SPDX-License-Identifier: Apache-2.0
"""The state directory of a device."""

import os
from pathlib import Path
import threading
from unittest import mock

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import state_dir
from attachd.tests.wait import TIMEOUT

ISCSI = {"target_portal": "a:1", "target_iqn": "iqn.x:v", "target_lun": 1}


class FolderTest(fixtures.TestWithFixtures):
    """Its path and its lock."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)

    def test_path_for_attachment_uses_its_id(self):
        info = ISCSI | {"attachment_id": "0d0a-1"}
        self.assertEqual(self.folder / "devices" / "0d0a-1", state_dir.path_for(self.folder, info))

    def test_path_without_attachment_id_depends_on_target(self):
        one, two = (state_dir.path_for(self.folder, ISCSI | {"target_lun": n}) for n in (1, 2))
        self.assertNotEqual(one, two)
        self.assertEqual(one, state_dir.path_for(self.folder, ISCSI | {"access_mode": "ro"}))

    def test_path_for_invalid_id_stays_below_devices(self):
        for wrong in ("../../etc", "/etc", ".", "", "a\0b", "x" * 65, "-x", 7):
            found = state_dir.path_for(self.folder, ISCSI | {"attachment_id": wrong})
            self.assertEqual(self.folder / "devices", found.parent)
            self.assertRegex(found.name, "^[0-9a-f]{32}$")

    def test_locked_excludes_second_holder(self):
        device = self.folder / "devices" / "x"
        self.useFixture(fixtures.MonkeyPatch(f"{state_dir.__name__}.LOCK_TIMEOUT", 0.05))
        with state_dir.locked(device):
            self.assertEqual(0o700, device.stat().st_mode & 0o777)
            with self.assertRaises(exception.LocalConflict), state_dir.locked(device):
                pass
        with state_dir.locked(device):
            pass

    def test_locked_waiter_gets_new_directory_after_removal(self):
        device = self.folder / "devices" / "x"
        got = []

        def wait():
            with state_dir.locked(device) as lock:
                got.append(os.path.samestat(os.fstat(lock), device.stat()))

        with state_dir.locked(device):
            waiting = threading.Thread(target=wait)
            waiting.start()
            state_dir.remove(device)
        waiting.join(TIMEOUT)
        self.assertEqual([True], got)

    def test_locked_while_directory_is_removed_between_mkdir_and_check_gets_new_one(self):
        device = self.folder / "devices" / "x"
        device.mkdir(parents=True)
        mkdir, is_dir = os.mkdir, Path.is_dir

        def remove_after_failure(path, *args, **kwargs):
            try:
                mkdir(path, *args, **kwargs)
            except FileExistsError:
                if Path(path) == device and is_dir(device):
                    device.rmdir()
                raise

        with mock.patch("os.mkdir", remove_after_failure), state_dir.locked(device) as lock:
            self.assertTrue(os.path.samestat(os.fstat(lock), device.stat()))

    def test_locked_on_plain_file_raises(self):
        (self.folder / "devices").mkdir()
        (self.folder / "devices" / "x").touch()
        with (
            self.assertRaisesRegex(exception.HostError, "Not a directory"),
            state_dir.locked(self.folder / "devices" / "x"),
        ):
            pass

    def test_remove_of_nonempty_directory_raises(self):
        device = self.folder / "devices" / "x"
        with state_dir.locked(device):
            (device / "file").touch()
            with self.assertRaisesRegex(exception.HostError, "cannot be removed"):
                state_dir.remove(device)
        state_dir.remove(self.folder / "nothing")

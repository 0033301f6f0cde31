# SPDX-License-Identifier: Apache-2.0
"""Snapshots on a share: which volumes get one."""

import os

from attachd import exception
from attachd.tests.unit.drivers.nfs.test_file_worker import FIRST, VOLUME_ID, Case

SNAPSHOT_ID = "5b0f3a52-5ed0-4a4b-9f0d-6f6a0f1d7a10"


class SnapshotsTest(Case):
    def test_snapshot_of_attached_volume_is_refused_and_leaves_nothing(self):
        self.files.link(VOLUME_ID, FIRST)
        with self.assertRaisesRegex(exception.BackendError, "detach it first") as raised:
            self.files.create_snapshot(SNAPSHOT_ID, VOLUME_ID, 1)
        self.assertTrue(raised.exception.final)
        self.assertEqual([], self.files.snapshot_ids())

    def test_repeated_snapshot_of_volume_attached_meanwhile_succeeds(self):
        self.files.create_snapshot(SNAPSHOT_ID, VOLUME_ID, 1)
        self.files.link(VOLUME_ID, FIRST)
        self.files.create_snapshot(SNAPSHOT_ID, VOLUME_ID, 1)
        self.assertEqual([SNAPSHOT_ID], self.files.snapshot_ids())
        self.files.delete_snapshot(SNAPSHOT_ID)
        self.assertEqual([], self.files.snapshot_ids())


class ManageTest(Case):
    def setUp(self):
        super().setUp()
        self.manageable = self.folder / "volumes" / "snapshots" / "manageable"

    def listed(self):
        return sorted(file.name for file in self.manageable.iterdir())

    def get(self, name):
        return self.files.get_manageable("snapshot", {"source-name": name})

    def manage(self, name):
        self.files.manage("snapshot", SNAPSHOT_ID, 1, {"source-name": name})

    def test_file_becomes_a_snapshot_and_a_file_again(self):
        (self.manageable / "--then").write_bytes(b"then")
        self.assertEqual(
            (4, ""), (self.get("--then")["size_bytes"], self.get("--then")["refusal"])
        )
        self.manage("--then")
        self.assertEqual([SNAPSHOT_ID], self.files.snapshot_ids())
        self.assertEqual([], self.listed())
        self.assertEqual(SNAPSHOT_ID, self.get(f"snapshot-{SNAPSHOT_ID}")["volume_id"])
        for _ in range(2):
            self.files.unmanage("snapshot", SNAPSHOT_ID)
            self.assertEqual([f"snapshot-{SNAPSHOT_ID}"], self.listed())
        self.assertEqual([], self.files.snapshot_ids())

    def test_what_is_no_file_of_its_own_is_refused_and_stays(self):
        volume = self.folder / "volumes" / VOLUME_ID
        (self.manageable / "symbolic").symlink_to("/etc/passwd")
        (self.manageable / "volume").hardlink_to(volume)
        (self.manageable / "folder").mkdir()
        os.mkfifo(self.manageable / "fifo")
        (self.manageable / "empty").touch()
        before = self.listed()
        for name in before:
            self.assertNotEqual("", self.get(name)["refusal"], name)
            with self.assertRaises(exception.BackendError) as raised:
                self.manage(name)
            self.assertTrue(raised.exception.final, name)
        self.assertEqual(before, self.listed())
        for name in (
            "../../etc/passwd",
            f"../../{VOLUME_ID}",
            "/etc/passwd",
            ".hidden",
            "a\0b",
            "",
        ):
            with self.assertRaises(exception.InvalidInput, msg=name):
                self.get(name)
        self.assertEqual([], self.files.snapshot_ids())

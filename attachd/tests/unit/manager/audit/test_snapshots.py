# SPDX-License-Identifier: Apache-2.0
"""The comparison of snapshots, with the fake driver."""

import uuid

from attachd.drivers import base
from attachd.manager.audit import runner
from attachd.manager.audit.rules import Kind
from attachd.tests.fixtures import backends, db_rows


class SnapshotsTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume = base.VolumeRef(db_rows.add_volume()["id"], 1)
        self.driver.create(self.volume)

    def take(self, snapshot_id=None):
        taken = base.SnapshotRef(snapshot_id or f"{uuid.uuid4()}", self.volume, 1)
        self.driver.create_snapshot(taken)
        return taken.id

    def found(self):
        result = runner.repair(self.backend)
        self.assertEqual([], result.not_compared)
        return [(item.kind, item.volume_id, item.outcome[:5]) for item in result.differences]

    def test_snapshots_with_rows_and_data_do_not_differ(self):
        self.take(db_rows.add_snapshot(self.volume.id)["id"])
        for state in ("creating", "error", "deleting", "error_deleting"):
            db_rows.add_snapshot(self.volume.id, state)
            self.take(db_rows.add_snapshot(self.volume.id, state)["id"])
        self.assertEqual([], self.found())

    def test_snapshot_without_data_is_found_and_kept(self):
        db_rows.add_snapshot(self.volume.id)
        kind = Kind.SNAPSHOT_WITHOUT_DATA
        self.assertEqual([(kind, self.volume.id, "Kept:")], self.found())

    def test_data_without_snapshot_is_found_and_kept(self):
        self.take()
        kind = Kind.DATA_WITHOUT_SNAPSHOT
        self.assertEqual([(kind, self.volume.id, "Kept:")], self.found())
        self.assertEqual(1, len(self.driver.list_snapshots()))

    def test_snapshot_that_is_created_meanwhile_is_no_difference(self):
        taken = self.take()
        listed = self.driver.list_snapshots

        def list_and_add():
            found = listed()
            if not db_rows.list_snapshots():
                self.addCleanup(setattr, self.driver, "list_snapshots", listed)
                db_rows.add_snapshot(self.volume.id, id=taken)
            return found

        self.driver.list_snapshots = list_and_add
        self.assertEqual([], self.found())

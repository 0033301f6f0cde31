# SPDX-License-Identifier: Apache-2.0
"""Metadata of snapshots."""

from attachd import exception
from attachd.db.volumes import metadata_pairs, snapshot_metadata, snapshot_store
from attachd.tests.fixtures import databases, db_rows


class SnapshotMetadataTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.snapshot = db_rows.add_snapshot(db_rows.add_volume()["id"])["id"]

    def stored(self):
        return snapshot_store.get(self.snapshot, None)["metadata"]

    def test_merge_keeps_and_replace_removes_other_pairs(self):
        snapshot_metadata.merge(self.snapshot, {"a": "1", "b": "2"})
        self.assertEqual(
            {"a": "1", "b": "3", "c": "4"},
            snapshot_metadata.merge(self.snapshot, {"b": "3", "c": "4"}),
        )
        snapshot_metadata.replace(self.snapshot, {"c": "5"})
        self.assertEqual({"c": "5"}, self.stored())

    def test_pairs_of_many_requests_are_limited_together(self):
        pairs = {f"{number}": "" for number in range(metadata_pairs.MAX_PAIRS)}
        snapshot_metadata.merge(self.snapshot, pairs)
        with self.assertRaisesRegex(exception.BadRequest, f"{self.snapshot} .* 257 metadata keys"):
            snapshot_metadata.merge(self.snapshot, {"another": ""})
        self.assertEqual(pairs, self.stored())

    def test_delete_removes_one_pair(self):
        snapshot_metadata.merge(self.snapshot, {"a": "1", "b": "2"})
        snapshot_metadata.delete(self.snapshot, "a")
        self.assertEqual({"b": "2"}, self.stored())
        with self.assertRaisesRegex(exception.NotFound, "no metadata with key a"):
            snapshot_metadata.delete(self.snapshot, "a")

    def test_missing_snapshot_is_not_found(self):
        for change in (snapshot_metadata.merge, snapshot_metadata.replace):
            with self.assertRaises(exception.SnapshotNotFound):
                change("gone", {"a": "b"})

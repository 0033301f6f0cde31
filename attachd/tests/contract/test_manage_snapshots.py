# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on objects that become snapshots; see test_drivers.py."""

import json
import uuid

import testscenarios

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests.contract.driving import GIB
from attachd.tests.contract.test_snapshots import AFTER, BEFORE, SnapshotCase

load_tests = testscenarios.load_tests_apply_scenarios


class ManageSnapshotsTest(SnapshotCase):
    """list_manageable_snapshots, manage_snapshot, unmanage_snapshot."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.ManageSnapshots)

    def released(self, volume) -> tuple[str, abilities.ManageableSnapshot]:
        """Make an object of a snapshot; return the id of the snapshot, and the object."""
        taken = self.snapshot(volume)
        self.driver.unmanage_snapshot(taken)
        return taken.id, self.found(taken.id)

    def found(self, name) -> abilities.ManageableSnapshot:
        """Find the object whose reference contains a text."""
        listed = self.driver.list_manageable_snapshots()
        (found,) = [item for item in listed if name in json.dumps(dict(item.reference))]
        return found

    def managed(self, volume, reference) -> base.SnapshotRef:
        """Make a snapshot of an object, removed with the test."""
        asked = base.SnapshotRef(f"{uuid.uuid4()}", volume, volume.size_gib)
        notes = self.driver.manage_snapshot(asked, reference)
        made = base.SnapshotRef(asked.id, volume, volume.size_gib, json.loads(json.dumps(notes)))
        self.addCleanup(self.driver.delete_snapshot, made)
        return made

    def test_unmanaged_snapshot_can_be_managed_with_its_data(self):
        volume = self.volume()
        self.write(volume, (0, BEFORE))
        former, item = self.released(volume)
        self.write(volume, (0, AFTER))
        self.assertEqual((GIB, "", ""), (item.size_bytes, item.refusal, item.snapshot_id))
        self.assertIn(item.volume_id, {"", volume.id})
        self.assertNotIn(former, self.driver.list_snapshots())
        made = self.managed(volume, item.reference)
        self.assertEqual([made.id], list(self.driver.list_snapshots()))
        copy = self.from_snapshot(made)
        self.assertEqual(BEFORE, self.read(copy, 0, len(BEFORE)))
        self.driver.revert(made)
        self.assertEqual(BEFORE, self.read(volume, 0, len(BEFORE)))

    def test_managed_snapshot_is_deleted_like_any_other(self):
        volume = self.volume()
        _former, item = self.released(volume)
        made = self.managed(volume, item.reference)
        self.driver.delete_snapshot(made)
        self.assertEqual([], list(self.driver.list_manageable_snapshots()))
        self.assertEqual({}, dict(self.driver.list_snapshots()))

    def test_snapshot_is_listed_and_cannot_be_managed_once_more(self):
        volume = self.volume()
        taken = self.snapshot(volume)
        (item,) = self.driver.list_manageable_snapshots()
        self.assertEqual(taken.id, item.snapshot_id)
        self.assertNotEqual("", item.refusal)
        self.assert_refused(self.managed, volume, item.reference, final=True)
        self.assertIn(taken.id, self.driver.list_snapshots())

    def test_manage_repeated_changes_nothing(self):
        volume = self.volume()
        _former, item = self.released(volume)
        made = self.managed(volume, item.reference)
        again = self.driver.manage_snapshot(
            base.SnapshotRef(made.id, volume, volume.size_gib), item.reference
        )
        self.assertEqual(made.provider, again)

    def test_get_manageable_snapshot_finds_listed_object(self):
        volume = self.volume()
        _former, item = self.released(volume)
        copied = dict(item.reference)
        self.assertEqual(item, self.driver.get_manageable_snapshot(volume, copied))
        made = self.managed(volume, item.reference)
        with self.assertRaises(exception.InvalidInput):
            self.driver.get_manageable_snapshot(volume, copied)
        managed = self.found(made.id)
        found = self.driver.get_manageable_snapshot(volume, managed.reference)
        self.assertEqual((made.id, managed.refusal), (found.snapshot_id, found.refusal))

    def test_get_manageable_snapshot_refuses_references_without_object(self):
        volume = self.volume()
        for reference in (
            {},
            {"source-name": ""},
            {"source-name": "missing"},
            {"source-name": "../x"},
            {"source-name": "--config"},
            {"source-name": "/etc/passwd"},
            {"source-name": "x\0y"},
            {"source-name": volume.id},
            {"source-id": "x"},
        ):
            with self.assertRaises(exception.InvalidInput, msg=reference) as caught:
                self.driver.get_manageable_snapshot(volume, reference)
            self.assertEqual("ref", caught.exception.details["field"])

    def test_manage_of_missing_object_is_refused_finally(self):
        volume = self.volume()
        _former, item = self.released(volume)
        self.managed(volume, item.reference)
        self.assert_refused(self.managed, volume, item.reference, final=True)

    def test_unmanage_repeated_or_of_unknown_snapshot_succeeds(self):
        volume = self.volume()
        former, item = self.released(volume)
        for snapshot_id in (former, f"{uuid.uuid4()}"):
            self.driver.unmanage_snapshot(base.SnapshotRef(snapshot_id, volume, 1))
        self.assertEqual([item], list(self.driver.list_manageable_snapshots()))
        self.managed(volume, item.reference)

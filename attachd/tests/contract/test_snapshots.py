# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on snapshots; see test_drivers.py."""

import functools
import json
import secrets
import uuid

import testscenarios

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests import concurrency
from attachd.tests.contract.driving import GIB, MIB, ZEROS, DriverCase

load_tests = testscenarios.load_tests_apply_scenarios

BEFORE, AFTER = b"then" * 1024, b"now " * 1024


class SnapshotCase(DriverCase):
    """Short ways to take snapshots and to use them."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.Snapshots)

    def snapshot(self, volume) -> base.SnapshotRef:
        """Take a snapshot, removed with the test."""
        asked = base.SnapshotRef(f"{uuid.uuid4()}", volume, volume.size_gib)
        notes = self.driver.create_snapshot(asked)
        taken = base.SnapshotRef(asked.id, volume, volume.size_gib, json.loads(json.dumps(notes)))
        self.addCleanup(self.driver.delete_snapshot, taken)
        return taken

    def from_snapshot(self, snapshot, size_gib=1) -> base.VolumeRef:
        """Create a volume of a snapshot, removed with the test."""
        asked = base.VolumeRef(f"{uuid.uuid4()}", size_gib)
        notes = self.driver.create_from_snapshot(asked, snapshot)
        created = base.VolumeRef(asked.id, size_gib, json.loads(json.dumps(notes)))
        self.addCleanup(self.driver.delete, created)
        return created

    def write(self, volume, *pieces) -> None:
        """Write to a volume that is attached for that."""
        export = self.export()
        info = self.granted(volume, export)
        for offset, data in pieces:
            self.host().write(info, offset, data)
        self.revoked(volume, export)

    def read(self, volume, offset, size) -> bytes:
        """Read from a volume that is attached for that."""
        export = self.export()
        found = self.host().read(self.granted(volume, export), offset, size)
        self.revoked(volume, export)
        return bytes(found)


class SnapshotsTest(SnapshotCase):
    """create_snapshot, delete_snapshot, list_snapshots."""

    def test_snapshot_keeps_data_of_its_moment(self):
        self.host()
        volume, first = self.volume(), secrets.token_bytes(MIB)
        self.write(volume, (5 * MIB, first), (GIB - 4096, BEFORE))
        taken = self.snapshot(volume)
        self.write(volume, (5 * MIB, AFTER), (GIB - 4096, AFTER), (700 * MIB, AFTER))
        created = self.from_snapshot(taken)
        self.assertEqual(first, self.read(created, 5 * MIB, MIB))
        self.assertEqual(BEFORE, self.read(created, GIB - 4096, 4096))
        for offset in (0, 700 * MIB):
            self.assertEqual(ZEROS, self.read(created, offset, len(ZEROS)))
        self.assertEqual(AFTER, self.read(volume, 5 * MIB, 4096))

    def test_each_of_several_snapshots_keeps_its_own_data(self):
        self.host()
        volume, taken = self.volume(), []
        for number in range(3):
            self.write(volume, (MIB, bytes([number + 1]) * 4096))
            taken.append(self.snapshot(volume))
        self.driver.delete_snapshot(taken.pop(1))
        for snapshot, number in zip(taken, (0, 2), strict=True):
            created = self.from_snapshot(snapshot)
            self.assertEqual(bytes([number + 1]) * 4096, self.read(created, MIB, 4096))

    def test_snapshots_of_one_volume_at_the_same_time_are_all_taken(self):
        self.host()
        volume = self.volume()
        self.write(volume, (MIB, BEFORE))
        asked = [base.SnapshotRef(f"{uuid.uuid4()}", volume, 1) for _ in range(4)]
        notes = concurrency.run_at_once(
            *(functools.partial(self.driver.create_snapshot, item) for item in asked)
        )
        self.assertEqual([], [note for note in notes if isinstance(note, Exception)])
        taken = [
            base.SnapshotRef(item.id, volume, 1, note)
            for item, note in zip(asked, notes, strict=True)
        ]
        for snapshot in taken:
            self.addCleanup(self.driver.delete_snapshot, snapshot)
        self.write(volume, (MIB, AFTER))
        created = self.from_snapshot(taken[-1])
        self.assertEqual(BEFORE, self.read(created, MIB, len(BEFORE)))
        deletions = (functools.partial(self.driver.delete_snapshot, item) for item in taken)
        self.assertEqual([None] * len(taken), concurrency.run_at_once(*deletions))
        self.assertEqual({}, dict(self.driver.list_snapshots()))
        self.assertEqual(AFTER, self.read(volume, MIB, len(AFTER)))

    def test_snapshot_of_attached_volume_is_taken_or_refused_finally(self):
        host = self.host()
        volume, export = self.volume(), self.export()
        info = self.granted(volume, export)
        host.write(info, 0, BEFORE)
        try:
            taken = self.snapshot(volume)
        except exception.BackendError as error:
            self.assertTrue(error.final, f"{error}")
            self.assertEqual({}, self.driver.list_snapshots())
            return
        host.write(info, 0, AFTER)
        self.assertEqual(self.expected(volume, export), self.listed(volume))
        self.assertEqual(BEFORE, self.read(self.from_snapshot(taken), 0, 4096))

    def test_snapshot_again_keeps_the_first_data(self):
        volume = self.volume()
        taken = self.snapshot(volume)
        if self.backend.host("a"):
            self.write(volume, (0, AFTER))
        asked = base.SnapshotRef(taken.id, volume, 1)
        self.assertEqual(taken.provider, self.driver.create_snapshot(asked))
        if self.backend.host("a"):
            self.assertEqual(ZEROS, self.read(self.from_snapshot(taken), 0, len(ZEROS)))

    def test_snapshots_are_listed_and_are_no_volumes(self):
        volume = self.volume()
        ids = {self.snapshot(volume).id for _ in range(2)}
        listed = self.driver.list_snapshots()
        self.assertEqual(ids, set(listed))
        self.assertLessEqual(set(listed.values()), {"", volume.id})
        self.assertEqual({volume.id}, set(self.driver.list_volumes()))
        if isinstance(self.driver, abilities.ManageExisting):
            found = self.driver.list_manageable()
            self.assertEqual([volume.id], [item.volume_id for item in found])

    def test_delete_snapshot_leaves_nothing_and_can_be_repeated(self):
        volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(volume)
        taken = self.snapshot(volume)
        for _ in range(2):
            self.driver.delete_snapshot(taken)
            self.assertEqual({}, self.driver.list_snapshots())
        self.driver.delete(volume)
        self.assertEqual([], self.backend.orphans())

    def test_delete_of_unknown_snapshot_succeeds(self):
        self.driver.delete_snapshot(base.SnapshotRef(f"{uuid.uuid4()}", self.volume(), 1))

    def test_snapshot_of_unknown_volume_is_refused_and_leaves_nothing(self):
        if not self.backend.knows_missing:
            self.skipTest("this backend does not report it")
        missing = base.VolumeRef(f"{uuid.uuid4()}", 1)
        asked = base.SnapshotRef(f"{uuid.uuid4()}", missing, 1)
        self.assert_refused(self.driver.create_snapshot, asked, final=True)
        self.assertEqual([], self.backend.orphans())

    def test_volume_is_extended_and_deleted_beside_its_former_snapshots(self):
        self.host()
        volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(volume)
        self.write(volume, (0, BEFORE))
        taken = self.snapshot(volume)
        self.driver.extend(volume, 2, [])
        self.assertEqual(2 * GIB, self.driver.list_volumes()[volume.id])
        self.assertEqual(BEFORE, self.read(self.from_snapshot(taken), 0, 4096))
        self.driver.delete_snapshot(taken)
        self.driver.delete(volume)
        self.assertNotIn(volume.id, self.driver.list_volumes())


class FromSnapshotTest(SnapshotCase):
    """create_from_snapshot."""

    def test_volume_and_snapshot_are_independent(self):
        self.host()
        volume = self.volume()
        self.write(volume, (0, BEFORE))
        taken = self.snapshot(volume)
        first = self.from_snapshot(taken)
        self.write(first, (0, AFTER))
        self.assertEqual(BEFORE, self.read(self.from_snapshot(taken), 0, 4096))
        self.assertEqual(BEFORE, self.read(volume, 0, 4096))
        self.driver.delete_snapshot(taken)
        self.assertEqual(AFTER, self.read(first, 0, 4096))

    def test_larger_volume_is_padded_with_zeros(self):
        host = self.host()
        volume = self.volume()
        self.write(volume, (GIB - 4096, BEFORE))
        created, export = self.from_snapshot(self.snapshot(volume), 2), self.export()
        self.assertEqual(2 * GIB, host.size(self.granted(created, export)))
        self.revoked(created, export)
        self.assertEqual(BEFORE, self.read(created, GIB - 4096, 4096))
        self.assertEqual(ZEROS, self.read(created, 2 * GIB - len(ZEROS), len(ZEROS)))

    def test_repeated_creation_changes_nothing(self):
        taken = self.snapshot(self.volume())
        created = self.from_snapshot(taken, 2)
        asked = base.VolumeRef(created.id, 2)
        self.assertEqual(created.provider, self.driver.create_from_snapshot(asked, taken))
        self.assertEqual(2 * GIB, self.driver.list_volumes()[created.id])

    def test_unknown_snapshot_is_refused_and_leaves_nothing(self):
        if not self.backend.knows_missing:
            self.skipTest("this backend does not report it")
        volume = self.volume()
        missing = base.SnapshotRef(f"{uuid.uuid4()}", volume, 1)
        asked = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.assert_refused(self.driver.create_from_snapshot, asked, missing, final=True)
        self.assertEqual({volume.id}, set(self.driver.list_volumes()))


class RevertTest(SnapshotCase):
    """revert."""

    def test_reverted_volume_has_data_of_snapshot_and_can_be_attached(self):
        self.host()
        volume = self.volume()
        self.write(volume, (0, BEFORE), (GIB - 4096, BEFORE))
        taken = self.snapshot(volume)
        self.write(volume, (0, AFTER), (GIB - 4096, AFTER), (300 * MIB, AFTER))
        for _ in range(2):
            self.driver.revert(taken)
            self.assertEqual(BEFORE, self.read(volume, 0, 4096))
            self.assertEqual(BEFORE, self.read(volume, GIB - 4096, 4096))
            self.assertEqual(ZEROS, self.read(volume, 300 * MIB, len(ZEROS)))
        self.write(volume, (0, AFTER))
        self.assertEqual(AFTER, self.read(volume, 0, 4096))
        self.assertEqual(BEFORE, self.read(self.from_snapshot(taken), 0, 4096))

    def test_revert_keeps_earlier_snapshots(self):
        self.host()
        volume = self.volume()
        self.write(volume, (0, b"old " * 1024))
        first = self.snapshot(volume)
        self.write(volume, (0, BEFORE))
        latest = self.snapshot(volume)
        self.write(volume, (0, AFTER))
        self.driver.revert(latest)
        self.assertEqual(BEFORE, self.read(volume, 0, 4096))
        self.assertEqual(b"old " * 1024, self.read(self.from_snapshot(first), 0, 4096))

    def test_revert_to_unknown_snapshot_is_refused_finally(self):
        if not self.backend.knows_missing:
            self.skipTest("this backend does not report it")
        volume = self.volume()
        missing = base.SnapshotRef(f"{uuid.uuid4()}", volume, 1)
        self.assert_refused(self.driver.revert, missing, final=True)
        self.assertEqual({volume.id}, set(self.driver.list_volumes()))


class ReadSnapshotsTest(SnapshotCase):
    """open_snapshot."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.ReadSnapshots)

    def test_read_snapshot_has_data_of_its_moment(self):
        volume = self.volume()
        if self.backend.host("a"):
            self.write(volume, (5 * MIB, BEFORE), (GIB - 4096, BEFORE))
        taken = self.snapshot(volume)
        if self.backend.host("a"):
            self.write(volume, (5 * MIB, AFTER), (700 * MIB, AFTER))
        expected = BEFORE if self.backend.host("a") else ZEROS[:4096]
        with self.driver.open_snapshot(taken) as data:
            self.assertEqual(expected, data.read(5 * MIB, 4096))
            self.assertEqual(ZEROS[:4096], data.read(700 * MIB, 4096))
            self.assertEqual(expected, data.read(GIB - 4096, 4096))

    def test_unknown_snapshot_is_refused_finally(self):
        unknown = base.SnapshotRef(f"{uuid.uuid4()}", self.volume(), 1)
        if self.driver.IN_MEMORY:
            self.skipTest("its snapshots have no data")
        with self.assertRaises(exception.BackendError) as refused:
            self.driver.open_snapshot(unknown).__enter__()
        self.assertTrue(refused.exception.final)

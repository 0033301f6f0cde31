# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on processes that were taken over; see test_drivers.py.

Each method is refused at its first change, then at its second one, and so on until it succeeds.
"""

from collections.abc import Callable, Iterator
import dataclasses
from typing import Any
import uuid

import testscenarios

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests.contract.driving import GIB, MIB, DriverCase

load_tests = testscenarios.load_tests_apply_scenarios

_MOST_CHANGES = 64


class _Refusal:
    """Refuses from the n-th change on, and records the state at the first refusal."""

    def __init__(self, number: int, read_state: Callable[[], Any]) -> None:
        self._left = number
        self._read_state = read_state
        self.came = False
        self.seen: Any = None

    def __call__(self) -> None:
        self._left -= 1
        if self._left > 0:
            return
        if not self.came:
            self.came = True
            self.seen = self._read_state()
        raise exception.BackendError("Another process has taken over.")


class TakenOverTest(DriverCase):
    """A process that was taken over changes nothing, and its successor reaches the same state."""

    def setUp(self):
        super().setUp()
        # The state is read within the check, around which the driver may hold a lock of its own.
        self.observer = self.new_driver() if self.backend.knows_missing else self.driver

    def refused(self, call: Callable[[], Any]) -> Iterator[str]:
        """Refuse a call at each of its changes; yields after each refusal, to have it repeated.

        It yields which change was refused, for messages.

        :returns: after a call that had no such change
        """
        before = self.backend.seen(self.observer)
        for number in range(1, _MOST_CHANGES):
            refusal = _Refusal(number, lambda: self.backend.seen(self.observer))
            with base.ownership(refusal):
                try:
                    call()
                except exception.BackendError as error:
                    self.assertFalse(error.final, f"{number}: {error}")
                    self.assertTrue(refusal.came, f"{number}: {error}")
                else:
                    self.assertFalse(refusal.came, f"change {number} was made all the same")
                    self.assertGreater(number, 1, "it never asked")
                    return
            if number == 1:
                self.assertEqual(before, refusal.seen, "changed before the first check")
            self.assertEqual(refusal.seen, self.backend.seen(self.observer), f"change {number}")
            yield f"change {number}"
        self.fail("it never ends")

    def test_taken_over_create_can_be_repeated(self):
        volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.addCleanup(self.driver.delete, volume)
        for number in self.refused(lambda: self.driver.create(volume)):
            provider = self.driver.create(volume)
            self.assertEqual(provider, self.driver.create(volume), number)
            self.assertEqual(GIB, self.driver.list_volumes()[volume.id], number)
            self.driver.delete(volume)

    def test_taken_over_delete_can_be_repeated(self):
        volume = self.volume()
        for number in self.refused(lambda: self.driver.delete(volume)):
            self.driver.delete(volume)
            self.assertNotIn(volume.id, self.driver.list_volumes(), number)
            self.driver.create(volume)
        self.assertNotIn(volume.id, self.driver.list_volumes())

    def test_taken_over_clone_can_be_repeated(self):
        self.require_ability(abilities.Clone)
        source = self.volume()
        if host := self.backend.host("a"):
            export = self.export()
            host.write(self.granted(source, export), MIB, b"data" * 1024)
            self.revoked(source, export)
        copy = base.VolumeRef(f"{uuid.uuid4()}", 2)
        self.addCleanup(self.driver.delete, copy)
        for number in self.refused(lambda: self.driver.clone(copy, source)):
            self.driver.clone(copy, source)
            self.assertEqual(2 * GIB, self.driver.list_volumes()[copy.id], number)
            if host:
                export = self.export()
                info = self.granted(copy, export)
                self.assertEqual(b"data" * 1024, host.read(info, MIB, 4096), number)
                self.revoked(copy, export)
            self.driver.delete(copy)

    def test_taken_over_snapshot_and_its_deletion_can_be_repeated(self):
        self.require_ability(abilities.Snapshots)
        volume = self.volume()
        snapshot = base.SnapshotRef(f"{uuid.uuid4()}", volume, 1)
        self.addCleanup(self.driver.delete_snapshot, snapshot)
        for number in self.refused(lambda: self.driver.create_snapshot(snapshot)):
            self.driver.create_snapshot(snapshot)
            self.assertEqual({snapshot.id}, set(self.driver.list_snapshots()), number)
            self.driver.delete_snapshot(snapshot)
        for number in self.refused(lambda: self.driver.delete_snapshot(snapshot)):
            self.driver.delete_snapshot(snapshot)
            self.assertEqual(set(), set(self.driver.list_snapshots()), number)
            self.driver.create_snapshot(snapshot)

    def test_taken_over_use_of_snapshot_can_be_repeated(self):
        self.require_ability(abilities.Snapshots)
        volume = self.volume()
        snapshot = base.SnapshotRef(f"{uuid.uuid4()}", volume, 1)
        self.driver.create_snapshot(snapshot)
        self.addCleanup(self.driver.delete_snapshot, snapshot)
        created = base.VolumeRef(f"{uuid.uuid4()}", 2)
        self.addCleanup(self.driver.delete, created)
        for number in self.refused(lambda: self.driver.create_from_snapshot(created, snapshot)):
            self.driver.create_from_snapshot(created, snapshot)
            self.assertEqual(2 * GIB, self.driver.list_volumes()[created.id], number)
            self.driver.delete(created)
        for number in self.refused(lambda: self.driver.revert(snapshot)):
            self.driver.revert(snapshot)
            self.assertEqual(GIB, self.driver.list_volumes()[volume.id], number)

    def test_taken_over_manage_and_unmanage_can_be_repeated(self):
        self.require_ability(abilities.ManageExisting)
        volume = self.volume()

        def reference():
            (item,) = self.driver.list_manageable()
            return item.reference

        for number in self.refused(lambda: self.driver.unmanage(volume)):
            self.driver.unmanage(volume)
            self.assertNotIn(volume.id, self.driver.list_volumes(), number)
            self.driver.manage(volume, reference())
        known = reference()
        for number in self.refused(lambda: self.driver.manage(volume, known)):
            self.driver.manage(volume, known)
            self.assertEqual(GIB, self.driver.list_volumes()[volume.id], number)
            self.driver.unmanage(volume)

    def test_taken_over_extend_can_be_repeated(self):
        self.require_ability(abilities.OnlineExtend)
        volume, export = self.volume(), self.export()
        info = self.granted(volume, export)
        size = 1

        def extend() -> None:
            self.driver.extend(volume, size + 1, [export])

        for number in self.refused(extend):
            extend()
            size += 1
            self.assertEqual(size * GIB, self.driver.list_volumes()[volume.id], number)
            self.assertEqual(self.expected(volume, export), self.listed(volume), number)
            if host := self.backend.host("a"):
                self.assertEqual(size * GIB, host.size(info), number)

    def test_taken_over_extend_of_detached_volume_can_be_repeated(self):
        volume, size = self.volume(), 1

        def extend() -> None:
            self.driver.extend(volume, size + 1, [])

        for number in self.refused(extend):
            extend()
            size += 1
            self.assertEqual(size * GIB, self.driver.list_volumes()[volume.id], number)

    def test_taken_over_grant_can_be_repeated(self):
        volume, beside = self.volume(), self.export("b")
        self.granted(volume, beside)
        for mode in ("rw", "ro"):
            export = self.export(mode=mode)
            for number in self.refused(lambda item=export: self.driver.grant(volume, item)):
                info = self.granted(volume, export)
                self.assertEqual(self.expected(volume, beside, export), self.listed(volume))
                if host := self.backend.host("a"):
                    self.assertEqual(512, len(host.read(info, 0, 512)), number)
                self.revoked(volume, export)
                self.assertEqual(self.expected(volume, beside), self.listed(volume), number)
            self.revoked(volume, export)

    def test_interrupted_grant_that_is_not_repeated_is_revoked(self):
        volume, export = self.volume(), self.export()
        for number in self.refused(lambda: self.driver.grant(volume, export)):
            self.driver.revoke(volume, export, [])
            self.assertEqual(set(), self.listed(volume), number)
        self.driver.revoke(volume, export, [])

    def test_taken_over_revoke_can_be_repeated(self):
        volume = self.volume()
        others = [self.export("b"), self.export("c"), self.export("d", mode="ro")]
        for mode, named in (("rw", "rw"), ("ro", "ro"), ("rw", "ro")):
            export = self.export(mode=mode)
            asked = dataclasses.replace(export, mode=named)
            self.driver.grant(volume, export)
            for other in others:
                self.granted(volume, other)

            def revoke(item: base.Export = asked) -> None:
                self.driver.revoke(volume, item, others)

            for number in self.refused(revoke):
                revoke()
                self.assertEqual(self.expected(volume, *others), self.listed(volume), number)
                self.driver.grant(volume, export)
                for other in others[1:]:  # The order of grants is not always that of names.
                    self.driver.grant(volume, other)
            self.assertEqual(self.expected(volume, *others), self.listed(volume))

    def test_taken_over_revoke_of_last_export_can_be_repeated(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        for number in self.refused(lambda: self.driver.revoke(volume, export, [])):
            self.driver.revoke(volume, export, [])
            self.assertEqual(set(), self.listed(volume), number)
            self.driver.grant(volume, export)

    def test_taken_over_evict_can_be_repeated(self):
        self.require_ability(abilities.Evict)
        volume = self.volume()
        staying, leaving = self.export("b"), [self.export(), self.export("c", mode="ro")]
        for item in (staying, *leaving):
            self.granted(volume, item)
        for number in self.refused(lambda: self.driver.revoke_all_except(volume, [staying])):
            self.driver.revoke_all_except(volume, [staying])
            self.assertEqual(self.expected(volume, staying), self.listed(volume), number)
            for item in leaving:
                self.driver.grant(volume, item)
        self.assertEqual(self.expected(volume, staying), self.listed(volume))

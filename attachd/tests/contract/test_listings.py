# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract that audits rely on; see test_drivers.py."""

from concurrent import futures
import dataclasses
import threading
import uuid

import testscenarios

from attachd.drivers import abilities, base
from attachd.tests.contract import backends
from attachd.tests.contract.driving import GIB, DriverCase

load_tests = testscenarios.load_tests_apply_scenarios


class ListedTest(DriverCase):
    """list_exports, list_volume_exports, expected_exports, list_orphans."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.Audit)

    def assert_listed(self, volume, *exports):
        expected = self.expected(volume, *exports)
        self.assertEqual(expected, self.listed(volume))
        listed = [export for export in self.exported() if export.volume_id == volume.id]
        self.assertEqual(expected, set(listed))
        self.assertEqual(len(expected), len(listed))

    def test_granted_exports_are_listed_as_expected(self):
        volume, granted = self.volume(), []
        self.volume()
        for host, mode in (("a", "rw"), ("b", "ro"), ("a", "rw"), ("c", "ro"), ("a", "ro")):
            self.assert_listed(volume, *granted)
            granted.append(self.export(host, mode))
            self.granted(volume, granted[-1])
        while granted:
            self.assert_listed(volume, *granted)
            self.revoked(volume, granted.pop(0))
        self.assert_listed(volume)

    def test_other_process_lists_the_same_exports(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        if self.backend.knows_missing:
            self.driver = self.new_driver()
            self.assert_listed(volume, export)

    def test_list_exports_distinguishes_modes_if_enforced(self):
        self.require_promise("read_only_enforced")
        volume = self.volume()
        for mode in ("rw", "ro"):
            self.granted(volume, self.export(mode, mode))
        holders = {export.mode: export.holders for export in self.exported() if export.holders}
        self.assertEqual({"rw", "ro"}, holders.keys())
        self.assertFalse(holders["rw"] & holders["ro"])

    def test_expected_exports_needs_no_backend_request(self):
        before = self.backend.seen(self.driver)
        volume = base.VolumeRef(f"{uuid.uuid4()}", 1)
        export = self.export()
        result = [set(self.driver.expected_exports(volume, [export])) for _ in range(2)]
        self.assertEqual(result[0], result[1])
        self.assertTrue(result[0])
        self.assertEqual(set(), set(self.driver.expected_exports(volume, [])))
        self.assertEqual(before, self.backend.seen(self.driver))

    def test_list_exports_shows_no_secret(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        self.assertNotIn(
            export.secret, f"{[*self.driver.list_exports(), *self.driver.list_orphans()]}"
        )

    def test_listing_changes_nothing(self):
        volume = self.volume()
        self.granted(volume, self.export())
        before = self.backend.seen(self.driver)
        for list_all in (self.driver.list_exports, self.driver.list_orphans):
            list(list_all())
        list(self.driver.list_volume_exports(volume))
        self.assertEqual(before, self.backend.seen(self.driver))

    def test_exports_after_restart_are_expected_ones(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        self.backend.restart(self.driver)
        expected = {
            expected_export.volume_id: expected_export
            for expected_export in self.driver.expected_exports(volume, [export])
        }
        for item in self.exported():
            self.assertLessEqual(item.holders, expected[item.volume_id].holders)
        self.driver.grant(volume, export)
        self.assert_listed(volume, export)

    def test_list_orphans_after_revoke_and_delete_is_empty(self):
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        self.assertEqual([], list(self.driver.list_orphans()))
        self.revoked(volume, export)
        self.assertEqual([], list(self.driver.list_orphans()))

    def test_unchanged_volume_is_listed_correctly_during_changes_of_others(self):
        volume, exports = self.volume(), [self.export(), self.export("b", "ro")]
        for item in exports:
            self.granted(volume, item)
        expected = set(self.driver.expected_exports(volume, exports))
        done = threading.Event()

        def come_and_go():
            other = base.VolumeRef(f"{uuid.uuid4()}", 1)
            while not done.is_set():
                self.driver.create(other)
                export = self.export("c")
                self.driver.grant(other, export)
                self.driver.revoke(other, export, [])
                self.driver.delete(other)

        with futures.ThreadPoolExecutor(2) as pool:
            busy = [pool.submit(come_and_go) for _ in range(2)]
            try:
                for _ in range(50):
                    listed = {e for e in self.exported() if e.volume_id == volume.id}
                    self.assertEqual(expected, listed)
                    self.assertEqual(GIB, self.driver.list_volumes()[volume.id])
            finally:
                done.set()
            for item in busy:
                item.result()


class EvictedTest(DriverCase):
    """revoke_all_except."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.Evict)

    def assert_left(self, volume, *exports):
        self.assertEqual(self.expected(volume, *exports), self.listed(volume))

    def test_revoke_all_except_keeps_only_given_exports(self):
        volume = self.volume()
        exports = [self.export(host, mode) for host in "abc" for mode in ("rw", "ro")]
        infos = [self.granted(volume, export) for export in exports]
        for staying in (exports[1:5], exports[1:2], []):
            self.driver.revoke_all_except(volume, staying)
            self.assert_left(volume, *staying)
            for export, info in zip(exports, infos, strict=True):
                if export in staying and (host := self.backend.host(export.connector["host"])):
                    host.read(info, 0, 512)

    def test_evicted_host_has_no_access(self):
        volume, export = self.volume(), self.export()
        host, info = self.host(), self.granted(volume, export)
        host.read(info, 0, 512)
        self.driver.revoke_all_except(volume, [])
        self.assertRaises(backends.Refused, host.read, info, 0, 512)

    def test_grant_after_revoke_in_wrong_mode_uses_right_mode(self):
        self.require_promise("read_only_enforced")
        volume, export = self.volume(), self.export()
        beside = [self.export("b"), self.export("c", mode="ro")]
        for item in (export, *beside):
            self.granted(volume, item)
        changed = dataclasses.replace(export, mode="ro")
        self.driver.revoke_all_except(volume, [changed, *beside])
        self.driver.grant(volume, changed)
        self.assert_left(volume, changed, *beside)

    def test_evict_of_unknown_volume_or_no_host_succeeds(self):
        self.driver.revoke_all_except(base.VolumeRef(f"{uuid.uuid4()}", 1), [])
        volume, export = self.volume(), self.export()
        self.granted(volume, export)
        for _ in range(2):
            self.driver.revoke_all_except(volume, [export])
            self.assert_left(volume, export)

    def test_volume_without_exports_after_evict_can_be_deleted(self):
        volume = self.volume()
        self.granted(volume, self.export())
        self.driver.revoke_all_except(volume, [])
        self.driver.delete(volume)
        self.assertEqual([], self.backend.orphans())

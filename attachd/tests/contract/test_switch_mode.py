# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on modes that change under a session; see test_drivers.py."""

import dataclasses
import uuid

import testscenarios

from attachd.drivers import abilities
from attachd.tests.contract import backends
from attachd.tests.contract.driving import DriverCase

load_tests = testscenarios.load_tests_apply_scenarios

BLOCK = 4096


def switched(export, mode):
    return dataclasses.replace(export, mode=mode)


class SwitchModeTest(DriverCase):
    """abilities.SwitchMode."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.SwitchMode)
        self.source, self.moving = self.export("a"), self.own("b")

    def own(self, host, mode="ro"):
        return dataclasses.replace(self.export(host, mode), own_connection=True)

    def grant(self, volume, export):
        """Grant again, as the manager does to switch."""
        self.live[volume.id][export.attachment_id] = export
        return self.driver.grant(volume, export)

    def assert_listed(self, volume, *exports):
        expected = self.expected(volume, *exports)
        self.assertEqual(expected, self.listed(volume))
        listed = [export for export in self.exported() if export.volume_id == volume.id]
        self.assertEqual((len(expected), expected), (len(listed), set(listed)))

    def without_mode(self, info):
        data = {key: value for key, value in info["data"].items() if key != "access_mode"}
        return {**info, "data": data}

    def test_read_only_is_enforced(self):
        self.assertTrue(self.driver.promises.read_only_enforced)

    def test_export_shares_no_connection(self):
        volume = self.volume()
        self.assertEqual("", self.driver.connection_key(volume, self.moving))
        shared = {
            name for item in self.driver.expected_exports(volume, [self.export("b", "ro")])
            for name in item.holders
        }  # fmt: skip
        own = self.driver.expected_exports(volume, [self.moving])
        self.assertFalse(shared & {name for item in own for name in item.holders})

    def test_switch_changes_the_listed_mode_and_no_other_part_of_the_answer(self):
        volume = self.volume()
        info = self.granted(volume, self.source), self.granted(volume, self.moving)
        self.assert_listed(volume, self.source, self.moving)
        writing = switched(self.moving, "rw")
        answer = self.grant(volume, writing)
        self.assertEqual(self.without_mode(info[1]), self.without_mode(answer))
        self.assert_listed(volume, self.source, writing)
        self.revoked(volume, self.source)
        self.assert_listed(volume, writing)
        self.grant(volume, self.moving)
        self.assert_listed(volume, self.moving)
        self.revoked(volume, self.moving)
        self.assert_listed(volume)

    def test_write_is_refused_before_the_switch_and_accepted_after_it_in_one_session(self):
        self.host()
        volume = self.volume()
        source = self.backend.open("a", self.granted(volume, self.source))
        info = self.granted(volume, self.moving)
        moving = self.backend.open("b", info)
        source.write(0, b"1" * BLOCK)
        self.assertRaises(backends.Refused, moving.write, 0, b"2" * BLOCK)
        self.revoked(volume, self.source)
        self.assertRaises(backends.Refused, moving.write, 0, b"2" * BLOCK)
        self.grant(volume, switched(self.moving, "rw"))
        moving.write(0, b"3" * BLOCK)
        self.assertRaises(backends.Refused, source.write, 0, b"4" * BLOCK)
        self.assertEqual(b"3" * BLOCK, self.host("b").read(info, 0, BLOCK))
        self.grant(volume, self.moving)
        self.assertRaises(backends.Refused, moving.write, 0, b"5" * BLOCK)
        moving.close()

    def test_restarted_backend_has_the_present_mode_again(self):
        volume = self.volume()
        self.granted(volume, self.source)
        self.granted(volume, self.moving)
        for mode in ("ro", "rw", "ro"):
            self.moving = switched(self.moving, mode)
            before = self.grant(volume, self.moving)
            self.backend.restart(self.driver)
            self.driver.grant(volume, self.source)
            self.assertEqual(before, self.grant(volume, self.moving))
            self.assert_listed(volume, self.source, self.moving)
            if (host := self.backend.host("b")) and mode == "rw":
                host.write(before, 0, b"6" * BLOCK)
            elif host:
                info = {**before, "data": {**before["data"], "access_mode": "rw"}}
                self.assertRaises(backends.Refused, host.write, info, 0, b"7" * BLOCK)

    def test_other_exports_of_the_same_host_keep_their_mode_and_their_access(self):
        volume, beside = self.volume(), self.export("b")
        reading = self.own("b")
        for export in (beside, self.moving, reading):
            self.granted(volume, export)
        writing = switched(self.moving, "rw")
        self.grant(volume, writing)
        self.assert_listed(volume, beside, writing, reading)
        self.revoked(volume, beside)
        self.assert_listed(volume, writing, reading)
        self.revoked(volume, writing)
        self.assert_listed(volume, reading)

    def test_revoke_after_interrupted_switch_leaves_nothing(self):
        volume = self.volume()
        self.granted(volume, self.moving)
        self.grant(volume, switched(self.moving, "rw"))
        self.revoked(volume, self.moving)
        self.assertEqual([], self.exported())

    def test_volume_with_such_an_export_is_not_deleted(self):
        volume = self.volume()
        self.granted(volume, self.moving)
        self.assert_refused(self.driver.delete, volume, final=True)

    def test_reservation_is_held_by_one_export_of_a_host_with_two(self):
        self.require_ability(abilities.PersistentReservations)
        volume, beside = self.volume(), self.export("b")
        shared, own = self.granted(volume, beside), self.granted(volume, self.moving)
        for holder, info, other in ((beside, shared, self.moving), (self.moving, own, beside)):
            if not self.backend.reserve(self.driver, volume, holder, info):
                self.skipTest("hosts of the test backend reserve nothing")
            self.assert_holder(
                volume, self.driver.get_persistent_reservation(volume), holder, other
            )

    def test_extended_volume_keeps_the_mode(self):
        self.require_ability(abilities.OnlineExtend)
        volume = self.volume()
        self.granted(volume, self.source)
        info = self.granted(volume, self.moving)
        self.driver.extend(volume, 2, [self.source, self.moving])
        self.assert_listed(volume, self.source, self.moving)
        if host := self.backend.host("b"):
            self.assertEqual(2 * 2**30, host.size(info))

    def test_eviction_keeps_it_and_repairs_its_mode(self):
        self.require_ability(abilities.Evict)
        volume, stray = self.volume(), self.own("c", "rw")
        for export in (self.source, self.moving, stray):
            self.granted(volume, export)
        self.driver.revoke_all_except(volume, [self.source, self.moving])
        self.assert_listed(volume, self.source, self.moving)
        self.driver.grant(volume, switched(self.moving, "rw"))
        self.driver.revoke_all_except(volume, [self.source, self.moving])
        self.driver.grant(volume, self.moving)
        self.assert_listed(volume, self.source, self.moving)
        self.driver.revoke_all_except(volume, [])
        self.assert_listed(volume)

    def test_export_is_found_by_its_id_alone(self):
        """The manager has nothing else of it after a crash."""
        volume = self.volume()
        self.granted(volume, self.moving)
        self.driver.revoke(volume, dataclasses.replace(self.moving, secret=""), [])
        unknown = dataclasses.replace(self.moving, attachment_id=f"{uuid.uuid4()}")
        self.driver.revoke(volume, unknown, [])
        self.assert_listed(volume)

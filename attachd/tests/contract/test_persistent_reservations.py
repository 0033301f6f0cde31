# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on persistent reservations; see test_drivers.py."""

import uuid

import testscenarios

from attachd.drivers import abilities, base
from attachd.tests.contract.driving import DriverCase

load_tests = testscenarios.load_tests_apply_scenarios


class ReservationsTest(DriverCase):
    """get_persistent_reservation."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.PersistentReservations)

    def test_volume_without_reservation_or_unknown_has_none(self):
        volume, export = self.volume(), self.export()
        self.assertIsNone(self.driver.get_persistent_reservation(volume))
        self.granted(volume, export)
        self.assertIsNone(self.driver.get_persistent_reservation(volume))
        self.assertIsNone(
            self.driver.get_persistent_reservation(base.VolumeRef(f"{uuid.uuid4()}", 1))
        )

    def test_reservation_has_type_and_holder_of_its_export(self):
        volume, holder, other = self.volume(), self.export("a"), self.export("b")
        info = self.granted(volume, holder)
        self.granted(volume, other)
        if not self.backend.reserve(self.driver, volume, holder, info):
            self.skipTest("hosts of the test backend reserve nothing")
        found = self.driver.get_persistent_reservation(volume)
        self.assertNotEqual("", found.type)
        self.assert_holder(volume, found, holder, other)
        self.assertEqual(found, self.new_driver_or_same().get_persistent_reservation(volume))
        self.assertEqual(self.expected(volume, holder, other), self.listed(volume))

    def new_driver_or_same(self):
        return self.new_driver() if self.backend.knows_missing else self.driver

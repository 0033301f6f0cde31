# SPDX-License-Identifier: Apache-2.0
"""What every driver inherits, and what its value types keep."""

import dataclasses
import unittest

from attachd import exception
from attachd.drivers import base, fake
from attachd.tests.unit.drivers import configured


class Least(base.Driver):
    """A driver with nothing but what it must have."""

    def setup(self):
        pass

    def get_stats(self):
        return base.BackendStats("none", 0, 0, 0)

    def create(self, volume):
        return {}

    def clone(self, volume, source):
        return {}

    def delete(self, volume):
        pass

    def extend(self, volume, size_gib, exports):
        pass

    def grant(self, volume, export):
        return {"driver_volume_type": "none", "data": {}}

    def revoke(self, volume, export, others):
        pass


class DriverTest(unittest.TestCase):
    def test_each_method_without_an_inherited_answer_must_be_written(self):
        with self.assertRaisesRegex(TypeError, "create.*delete.*extend.*grant"):
            configured.driver(base.Driver)

    def test_a_driver_knows_its_name_and_its_own_options(self):
        driver = configured.driver(fake.FakeDriver, fake_delay=1.5)
        self.assertEqual((configured.GROUP, 1.5), (driver.name, driver.options.fake_delay))

    def test_a_backend_is_taken_to_remember_its_exports(self):
        driver = configured.driver(Least)
        self.assertEqual(driver.boot_id(), driver.boot_id())

    def test_a_driver_that_lists_nothing_does_not_claim_that_there_is_nothing(self):
        driver, volume = configured.driver(Least), base.VolumeRef("v", 1)
        for call in (
            driver.list_exports,
            driver.list_volumes,
            lambda: driver.revoke_all_except(volume, []),
        ):
            self.assertRaises(exception.BackendError, call)
        self.assertRaises(exception.BackendError, driver.list_volume_exports, volume)
        self.assertEqual([], [*driver.expected_exports(volume, []), *driver.list_orphans()])


class ValuesTest(unittest.TestCase):
    def test_what_may_be_secret_is_not_shown(self):
        export = base.Export("id", {"chap": "deadbeef"}, "rw", "deadbeef")
        self.assertNotIn("deadbeef", f"{export!r} {export}")

    def test_values_do_not_change(self):
        with self.assertRaises(dataclasses.FrozenInstanceError):
            base.VolumeRef("id", 1).size_gib = 2

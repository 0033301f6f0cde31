# SPDX-License-Identifier: Apache-2.0
"""The abilities of drivers."""

import dataclasses
import unittest

from attachd.drivers import abilities, base, fake
from attachd.tests.unit.drivers import configured
from attachd.tests.unit.drivers.test_base import MINIMAL_DRIVER

VOLUME = base.VolumeRef("v", 1)


class AbilitiesTest(unittest.TestCase):
    def test_minimal_driver_has_no_ability(self):
        found = abilities.get_abilities(configured.driver(MINIMAL_DRIVER))
        self.assertEqual(abilities.ABILITIES.keys(), found.keys())
        self.assertEqual({False}, set(found.values()))

    def test_driver_has_abilities_of_its_base_classes(self):
        found = abilities.get_abilities(configured.driver(fake.FakeDriver))
        self.assertEqual(
            abilities.ABILITIES.keys(),
            {name for name, has_it in found.items() if has_it},
        )

    def test_driver_without_method_of_its_ability_cannot_be_created(self):
        incomplete = type("Incomplete", (MINIMAL_DRIVER, abilities.Evict), {})
        with self.assertRaisesRegex(TypeError, "expected_exports.*list_exports.*revoke_all"):
            configured.driver(incomplete)

    def test_missing_is_what_export_needs_and_backend_does_not_list(self):
        driver = configured.driver(fake.FakeDriver)
        export = base.Export("a", {}, "rw")
        (needed,) = driver.expected_exports(VOLUME, [export])
        self.assertEqual([needed], abilities.find_missing(driver, VOLUME, export, []))
        self.assertEqual([], abilities.find_missing(driver, VOLUME, export, [needed]))
        other = dataclasses.replace(needed, mode="ro")
        self.assertEqual([needed], abilities.find_missing(driver, VOLUME, export, [other]))
        more = dataclasses.replace(needed, holders=needed.holders | {"b"})
        self.assertEqual([], abilities.find_missing(driver, VOLUME, export, [more]))

    def test_list_volume_exports_by_default_filters_list_exports(self):
        listed = [base.BackendExport("v", "rw"), base.BackendExport("other", "rw")]
        methods = {
            "list_exports": lambda _self: listed,
            "expected_exports": lambda _self, _volume, _exports: (),
        }
        listing = configured.driver(type("Listing", (MINIMAL_DRIVER, abilities.Audit), methods))
        self.assertEqual(listed[:1], list(listing.list_volume_exports(VOLUME)))
        self.assertEqual([], list(listing.list_orphans()))

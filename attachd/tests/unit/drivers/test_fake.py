# SPDX-License-Identifier: Apache-2.0
"""The fake driver: recorded calls, configured delays and failures."""

import time
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base, fake
from attachd.tests.unit.drivers import configured

VOLUME = base.VolumeRef("volume", 1)
EXPORT = base.Export("attachment", {})
OTHER = base.Export("other", {})


class FakeDriverTest(unittest.TestCase):
    def test_calls_are_recorded_in_order_with_ids(self):
        driver = configured.driver(fake.FakeDriver)
        driver.grant(VOLUME, EXPORT)
        driver.extend(VOLUME, 2, [EXPORT])
        driver.revoke(VOLUME, EXPORT, [OTHER])
        driver.clone(base.VolumeRef("copy", 3), VOLUME)
        self.assertEqual(
            [
                fake.Call("grant", "volume", "attachment"),
                fake.Call("extend", "volume", others=("attachment",)),
                fake.Call("revoke", "volume", "attachment", ("other",)),
                fake.Call("clone", "copy", others=("volume",)),
            ],
            list(driver.calls),
        )

    def test_number_of_recorded_calls_is_limited(self):
        with mock.patch.object(fake, "_CALLS_KEPT", 2):
            driver = configured.driver(fake.FakeDriver)
        for _ in range(5):
            driver.boot_id()
        self.assertEqual(2, len(driver.calls))

    def test_methods_of_fake_fail_option_fail(self):
        driver = configured.driver(fake.FakeDriver, fake_fail=["grant", "get_stats"])
        driver.create(VOLUME)
        for call in (driver.get_stats, lambda: driver.grant(VOLUME, EXPORT)):
            with self.assertRaisesRegex(exception.BackendError, "fake_fail") as caught:
                call()
            self.assertFalse(caught.exception.final)
        self.assertEqual([], list(driver.list_exports()))

    def test_failures_with_fake_fail_final_are_final(self):
        driver = configured.driver(fake.FakeDriver, fake_fail=["create"], fake_fail_final=True)
        with self.assertRaises(exception.BackendError) as caught:
            driver.create(VOLUME)
        self.assertTrue(caught.exception.final)

    def test_script_fails_selected_calls(self):
        driver = configured.driver(fake.FakeDriver)

        def script(call):
            if call.others:
                raise exception.BackendError("not while others look")

        driver.script = script
        driver.revoke(VOLUME, EXPORT, [])
        with self.assertRaisesRegex(exception.BackendError, "others look"):
            driver.revoke(VOLUME, EXPORT, [OTHER])

    def test_calls_take_fake_delay(self):
        driver = configured.driver(fake.FakeDriver, fake_delay=0.5)
        with mock.patch.object(time, "sleep") as sleep:
            driver.grant(VOLUME, EXPORT)
            driver.revoke(VOLUME, EXPORT, [])
        self.assertEqual([mock.call(0.5)] * 2, sleep.mock_calls)

    def test_calls_without_fake_delay_do_not_sleep(self):
        with mock.patch.object(time, "sleep") as sleep:
            configured.driver(fake.FakeDriver).grant(VOLUME, EXPORT)
        sleep.assert_not_called()

    def test_restart_removes_exports_and_changes_boot_id(self):
        driver = configured.driver(fake.FakeDriver)
        driver.grant(VOLUME, EXPORT)
        boot_ids = [driver.boot_id()]
        for _ in range(2):
            driver.restart()
            boot_ids.append(driver.boot_id())
        self.assertEqual(3, len(set(boot_ids)))
        self.assertEqual([], list(driver.list_exports()))

    def test_extend_never_shrinks_volume(self):
        driver = configured.driver(fake.FakeDriver)
        driver.create(VOLUME)
        driver.extend(VOLUME, 5, [])
        driver.extend(VOLUME, 3, [])
        self.assertEqual(5, driver.get_stats().allocated_gib)

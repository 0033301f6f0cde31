# SPDX-License-Identifier: Apache-2.0
"""What every driver inherits, and what its value types keep."""

import dataclasses
import os
import threading
import unittest

from attachd import exception
from attachd.drivers import base, command, fake
from attachd.tests.unit.drivers import configured
from attachd.tests.wait import TIMEOUT


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


def no():
    raise exception.BackendError("Somebody else works on it.")


class FencingTest(unittest.TestCase):
    def test_whoever_is_not_told_of_anything_may(self):
        base.check_fencing()

    def test_the_question_is_asked_inside_and_not_after(self):
        with base.fencing_scope(no):
            self.assertRaisesRegex(exception.BackendError, "Somebody else", base.check_fencing)
        base.check_fencing()

    def test_the_innermost_question_counts(self):
        with base.fencing_scope(no), base.fencing_scope(lambda: None):
            base.check_fencing()

    def test_another_thread_is_not_asked(self):
        failures = []

        def other():
            try:
                base.check_fencing()
            except exception.BackendError as error:
                failures.append(error)

        with base.fencing_scope(no):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        self.assertEqual([], failures)


class LifelinesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        reading, self.writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, self.writing)

    def _is_open_in_a_tool(self):
        return command.run(["test", "-e", f"/proc/self/fd/{self.writing}"], TIMEOUT).exit_code == 0

    def test_a_tool_inherits_a_lifeline_and_nothing_else(self):
        self.assertFalse(self._is_open_in_a_tool())
        base.add_liveness_fd(self.writing)
        self.addCleanup(base.remove_liveness_fd, self.writing)
        self.assertTrue(self._is_open_in_a_tool())
        base.remove_liveness_fd(self.writing)
        self.assertFalse(self._is_open_in_a_tool())

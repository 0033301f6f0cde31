# SPDX-License-Identifier: Apache-2.0
"""The base class of drivers, its value types, and fencing."""

import dataclasses
import os
import threading
import unittest

from attachd import exception
from attachd.drivers import base, command, fake
from attachd.tests.unit.drivers import configured
from attachd.tests.wait import TIMEOUT

MINIMAL_DRIVER = type(
    "MinimalDriver", (base.Driver,), dict.fromkeys(base.Driver.__abstractmethods__)
)
"""A driver with the abstract methods only."""


class DriverTest(unittest.TestCase):
    def test_driver_without_abstract_methods_raises_type_error(self):
        with self.assertRaisesRegex(TypeError, "create.*delete.*extend.*grant"):
            configured.driver(base.Driver)

    def test_driver_has_name_and_options(self):
        driver = configured.driver(fake.FakeDriver, fake_delay=1.5)
        self.assertEqual((configured.GROUP, 1.5), (driver.name, driver.options.fake_delay))

    def test_boot_id_by_default_is_constant(self):
        driver = configured.driver(MINIMAL_DRIVER)
        self.assertEqual(driver.boot_id(), driver.boot_id())

    def test_driver_by_default_promises_nothing_and_refuses_readers(self):
        driver = configured.driver(MINIMAL_DRIVER)
        self.assertEqual(set(), {name for name, kept in vars(driver.promises).items() if kept})
        driver.check_access_mode("rw")
        self.assertRaisesRegex(
            exception.InvalidInput, "read_only_enforced", driver.check_access_mode, "ro"
        )


class ValuesTest(unittest.TestCase):
    def test_export_repr_has_no_secrets(self):
        export = base.Export("id", {"chap": "deadbeef"}, "rw", "deadbeef")
        self.assertNotIn("deadbeef", f"{export!r} {export}")

    def test_exports_of_one_volume_and_mode_are_merged(self):
        parts = [
            base.BackendExport("v", "rw", frozenset(name), frozenset(name), frozenset(name))
            for name in "ab"
        ]
        both = frozenset("ab")
        reading = base.BackendExport("v", "ro", both)
        expected = [base.BackendExport("v", "rw", both, both, both), reading]
        self.assertEqual(expected, base.merge_exports([parts[0], reading, parts[1]]))

    def test_value_types_are_immutable(self):
        with self.assertRaises(dataclasses.FrozenInstanceError):
            base.VolumeRef("id", 1).size_gib = 2


def refuse():
    raise exception.BackendError("The lease is lost.")


class FencingTest(unittest.TestCase):
    def test_check_fencing_without_scope_passes(self):
        base.check_still_owner()

    def test_check_fencing_inside_scope_raises_and_passes_after(self):
        with base.ownership(refuse):
            self.assertRaisesRegex(exception.BackendError, "lease is lost", base.check_still_owner)
        base.check_still_owner()

    def test_check_fencing_in_nested_scopes_uses_innermost(self):
        with base.ownership(refuse), base.ownership(lambda: None):
            base.check_still_owner()

    def test_check_fencing_in_other_thread_passes(self):
        failures = []

        def other():
            try:
                base.check_still_owner()
            except exception.BackendError as error:
                failures.append(error)

        with base.ownership(refuse):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        self.assertEqual([], failures)


class LivenessDescriptorTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        reading, self.writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, self.writing)

    def _is_open_in_a_tool(self):
        return command.run(["test", "-e", f"/proc/self/fd/{self.writing}"], TIMEOUT).exit_code == 0

    def test_tool_inherits_only_liveness_descriptors(self):
        self.assertFalse(self._is_open_in_a_tool())
        base.add_liveness_fd(self.writing)
        self.addCleanup(base.remove_liveness_fd, self.writing)
        self.assertTrue(self._is_open_in_a_tool())
        base.remove_liveness_fd(self.writing)
        self.assertFalse(self._is_open_in_a_tool())

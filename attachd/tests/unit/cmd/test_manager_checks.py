# SPDX-License-Identifier: Apache-2.0
"""Whether all managers speak what this code speaks; test_status.py asks the command."""

import unittest
from unittest import mock

from attachd import exception
from attachd.cmd import manager_checks
from attachd.cmd.manager_checks import Code
from attachd.db.cluster import services
from attachd.rpc import manager_api
from attachd.tests import backends, databases


class ManagersTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)

    def _look(self, **contracts):
        for host, contract in contracts.items():
            services.report(
                binary="attachd-manager",
                host=f"{host}@fake",
                availability_zone="nova",
                up=True,
                error=None,
                report=None,
                spoken=services.Versions(contract, "Volume 1.2"),
            )
        return manager_checks.managers(None)

    def test_those_of_this_release_are_fine(self):
        self.assertEqual(Code.SUCCESS, self._look(one=manager_api.VERSION).code)

    def test_each_of_a_former_one_is_named(self):
        self.enterContext(mock.patch.object(manager_api, "VERSION", "1.7"))
        found = self._look(one="1.7", two="1.4", three="1.6")
        self.assertEqual(Code.WARNING, found.code)
        self.assertIn("three@fake (1.6), two@fake (1.4).", found.details)

    def test_nobody_is_looked_for_without_a_database(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(services, "versions", side_effect=gone):
            found = self._look()
        self.assertEqual(Code.SUCCESS, found.code)
        self.assertIn("Not looked at", found.details)


class PinTest(unittest.TestCase):
    def _look(self, pinned):
        backends.override(self, "attachd_manager", pinned, "upgrade_levels")
        return manager_checks.pin(None)

    def test_one_that_was_left_is_told_of(self):
        self.enterContext(mock.patch.object(manager_api, "VERSION", "1.7"))
        found = self._look("1.3")
        self.assertEqual(Code.WARNING, found.code)
        self.assertIn("attachd_manager is 1.3", found.details)

    def test_none_is_needed(self):
        for pinned in ("auto", manager_api.VERSION):
            self.assertEqual(Code.SUCCESS, self._look(pinned).code, pinned)

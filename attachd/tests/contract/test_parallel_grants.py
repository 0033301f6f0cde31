# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on parallel grants; see test_drivers.py."""

import functools

import testscenarios

from attachd.tests import concurrency
from attachd.tests.contract.driving import DriverCase

load_tests = testscenarios.load_tests_apply_scenarios

HOSTS = ("a", "b", "c", "d", "e", "f")


class ParallelGrantsTest(DriverCase):
    """Grants of one volume for different hosts at the same time."""

    def setUp(self):
        super().setUp()
        self.require("parallel_grants", self.driver.PARALLEL_GRANTS)
        self.ref = self.volume()

    def grant_all(self, exports):
        calls = [functools.partial(self.driver.grant, self.ref, export) for export in exports]
        for export in exports:
            self.addCleanup(self.driver.revoke, self.ref, export, ())
        return concurrency.run_at_once(*calls)

    def revoke_all(self, exports, others):
        calls = [
            functools.partial(self.driver.revoke, self.ref, export, others) for export in exports
        ]
        self.assertEqual([None] * len(exports), concurrency.run_at_once(*calls))

    def assert_listed(self, exports):
        expected = {
            (item.mode, item.holders, item.parts) for item in self.expected(self.ref, *exports)
        }
        listed = {(item.mode, item.holders, item.parts) for item in self.listed(self.ref)}
        self.assertEqual(expected, listed)

    def test_parallel_grants_have_the_result_of_single_grants(self):
        exports = [
            self.export(host, mode) for host, mode in zip(HOSTS, ["rw", "ro"] * 3, strict=True)
        ]
        answers = self.grant_all(exports)
        self.assert_listed(exports)
        self.assertEqual(answers, [self.driver.grant(self.ref, export) for export in exports])
        self.assert_listed(exports)

    def test_parallel_revokes_leave_the_others(self):
        exports = [self.export(host) for host in HOSTS]
        self.grant_all(exports)
        self.revoke_all(exports[:4], exports[4:])
        self.assert_listed(exports[4:])

    def test_parallel_revokes_of_all_leave_nothing(self):
        exports = [self.export(host) for host in HOSTS]
        for _ in range(3):
            self.grant_all(exports)
            self.revoke_all(exports, ())
            self.assert_listed([])

    def test_revoke_of_failed_grant_beside_granted_ones_leaves_them(self):
        exports = [self.export(host) for host in HOSTS]
        self.grant_all(exports[:5])
        self.driver.revoke(self.ref, exports[5], exports[:5])
        self.assert_listed(exports[:5])

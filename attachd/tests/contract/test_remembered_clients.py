# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on clients that backends forget; see test_drivers.py."""

import testscenarios

from attachd.drivers import abilities
from attachd.tests.contract import backends
from attachd.tests.contract.driving import DriverCase

load_tests = testscenarios.load_tests_apply_scenarios

BLOCK = 4096


class RememberClientsTest(DriverCase):
    """abilities.RememberClients.

    That a backend has forgotten a client takes minutes: tests of the driver itself show it.
    """

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.RememberClients)

    def test_recorded_client_is_ended_and_that_of_another_host_is_not(self):
        self.host()
        volume, leaving, staying = self.volume(), self.export("a"), self.export("b")
        opened = self.backend.open("a", self.granted(volume, leaving))
        other = self.backend.open("b", self.granted(volume, staying))
        for client in (opened, other):
            client.write(0, b"1" * BLOCK)
        for _ in range(2):
            self.driver.remember_clients()
        for _ in range(2):
            self.driver.end_remembered_clients(volume, leaving)
        self.assertRaises(backends.Refused, opened.write, 0, b"2" * BLOCK)
        other.write(0, b"3" * BLOCK)

    def test_export_without_recorded_client_keeps_its_access(self):
        volume, export = self.volume(), self.export("a")
        info = self.granted(volume, export)
        before = self.listed(volume)
        self.driver.remember_clients()
        self.driver.end_remembered_clients(volume, export)
        self.driver.end_remembered_clients(volume, self.export("b"))
        self.assertEqual(before, self.listed(volume))
        if host := self.backend.host("a"):
            host.write(info, 0, b"1" * BLOCK)

    def test_nothing_is_left_of_clients_whose_exports_are_gone(self):
        volume, export = self.volume(), self.export("a")
        before = self.backend.orphans()
        info = self.granted(volume, export)
        if self.backend.host("a"):
            opened = self.backend.open("a", info)
            self.driver.remember_clients()
            opened.close()
        self.revoked(volume, export)
        self.driver.remember_clients()
        self.assertEqual(before, self.backend.orphans())

# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on what backends enforce; see test_drivers.py.

Whether a reader can write is tested in test_drivers.py and test_access.py.
"""

import testscenarios

from attachd import exception
from attachd.drivers import abilities
from attachd.tests.contract import backends
from attachd.tests.contract.driving import DriverCase
from attachd.tests.wait import wait_until

load_tests = testscenarios.load_tests_apply_scenarios

BLOCK = 4096

CREDENTIALS = ("auth_method", "auth_username", "auth_password", "keyring", "hosts_nqn")
"""The keys of connection info that belong to a host, and not to a volume."""


class PromisesTest(DriverCase):
    """promises."""

    def test_promises_are_consistent(self):
        promises = self.driver.promises
        self.assertEqual(promises, self.new_driver().promises)
        if promises.session_end:
            self.assertTrue(promises.detach_proof, "session_end implies detach_proof")
        if promises.complete_listing or promises.frozen_host_cut_off or promises.session_listing:
            self.assertIsInstance(self.driver, abilities.Audit)

    def test_host_with_export_of_other_volume_does_not_reach_this_one(self):
        self.require_promise("per_host_access")
        host = self.host("b")
        info = self.granted(self.volume(), self.export("a"))
        own = self.granted(self.volume(), self.export("b"))
        host.read(own, 0, BLOCK)
        credentials = {key: own["data"][key] for key in CREDENTIALS if key in own["data"]}
        tried = {**info, "data": {**info["data"], **credentials}}
        self.assertRaises(backends.Refused, host.read, tried, 0, BLOCK)
        self.assertRaises(backends.Refused, host.write, tried, 0, b"b" * BLOCK)

    def test_host_that_is_not_listed_does_not_reach_volume(self):
        self.require_promise("complete_listing")
        volume, exports = self.volume(), [self.export("a"), self.export("b")]
        infos = [self.granted(volume, export) for export in exports]
        hosts = [self.host(name) for name in ("a", "b")]
        for info, host in zip(infos, hosts, strict=True):
            host.read(info, 0, BLOCK)
        self.assertEqual(2, len({name for item in self.exported() for name in item.holders}))
        self.revoked(volume, exports[1])
        self.assertEqual(1, len({name for item in self.exported() for name in item.holders}))
        self.assertRaises(backends.Refused, hosts[1].read, infos[1], 0, BLOCK)

    def test_revoke_ends_session_that_is_open(self):
        self.require_promise("session_end")
        self.check_end_of_session()

    def test_revoke_cuts_off_host_that_takes_no_part(self):
        self.require_promise("frozen_host_cut_off")
        volume, export = self.check_end_of_session()
        (name,) = self.expected_holders(volume, export)
        self.assertNotIn(name, {holder for item in self.listed(volume) for holder in item.holders})
        self.assertNotIn(
            name, {holder for item in self.listed(volume) for holder in item.sessions}
        )

    def test_host_that_has_volume_open_is_listed_with_session(self):
        self.require_promise("session_listing")
        self.host()
        volume, export, other = self.volume(), self.export("a"), self.export("b")
        info = self.granted(volume, export)
        self.granted(volume, other)
        names = self.expected_holders(volume, export)
        self.assertEqual(frozenset(), self.sessions(volume))
        opened = self.backend.open("a", info)
        opened.write(0, b"1" * BLOCK)
        self.assertEqual(names, self.sessions(volume))
        opened.close()
        wait_until(lambda: not self.sessions(volume), lambda: self.listed(volume))

    def sessions(self, volume):
        return frozenset().union(*(item.sessions for item in self.listed(volume)))

    def expected_holders(self, volume, export):
        expected = self.driver.expected_exports(volume, [export])
        return frozenset().union(*(item.holders for item in expected))

    def check_end_of_session(self):
        """Revoke what a host has open beside another one; return its volume and export."""
        self.host()
        volume, export, other = self.volume(), self.export("a"), self.export("b")
        opened = self.backend.open("a", self.granted(volume, export))
        beside = self.backend.open("b", self.granted(volume, other))
        opened.write(0, b"1" * BLOCK)
        self.revoked(volume, export)
        self.assertRaises(backends.Refused, opened.write, 0, b"2" * BLOCK)
        beside.write(BLOCK, b"3" * BLOCK)
        beside.close()
        return volume, export

    def test_revoke_that_succeeds_proves_detachment(self):
        self.require_promise("detach_proof")
        self.host()
        volume, export, other = self.volume(), self.export("a"), self.export("b")
        opened = self.backend.open("a", self.granted(volume, export))
        self.granted(volume, other)
        opened.write(0, b"1" * BLOCK)
        try:
            self.driver.revoke(volume, export, [other])
        except exception.BackendError as error:
            self.assertFalse(error.final, f"{error}")
            opened.close()
            self.driver.revoke(volume, export, [other])
        else:
            self.assertRaises(backends.Refused, opened.write, 0, b"2" * BLOCK)
        self.assertEqual(self.expected(volume, other), self.listed(volume))

# SPDX-License-Identifier: Apache-2.0
"""Tests of the proof that a host has no access any more."""

import dataclasses
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import abilities
from attachd.drivers.base import BackendExport, Export, Promises, VolumeRef
from attachd.manager import fencing
from attachd.rpc.manager_api import Fencing
from attachd.tests.fixtures import backends

VOLUME = VolumeRef("v", 1)
DEAD, LIVING = Export("a", {"host": "dead"}), Export("b", {"host": "living"})


class FenceTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.driver = backends.RecordingDriver()
        self.driver.create(VOLUME)
        for export in (DEAD, LIVING):
            self.driver.grant(VOLUME, export)

    def fence(self, others=(LIVING,)):
        return fencing.fence(self.driver, VOLUME, DEAD, others)

    def listing(self, *exports):
        return mock.patch.object(self.driver, "list_volume_exports", return_value=exports)

    def test_proof_has_two_observations(self):
        proof = self.fence()
        self.assertEqual(("proved", 2), (proof["result"], len(set(proof["observed_at"]))))
        seen = "No access and no session of a; 1 others have access, 0 have a session."
        self.assertEqual([seen, seen], proof["observed"])
        self.assertEqual({"b"}, self.driver.granted())

    def test_clients_that_the_backend_forgets_are_ended_before_the_revoke(self):
        with (
            self.driver.failing("end_remembered_clients"),
            self.assertRaises(exception.BackendError),
        ):
            self.fence()
        self.assertEqual({"a", "b"}, self.driver.granted())
        self.fence()
        calls = [call.method for call in self.driver.calls]
        self.assertLess(calls.index("end_remembered_clients"), calls.index("revoke"))

    def test_listed_holder_or_session_is_no_proof(self):
        for export, said in (
            (BackendExport("v", "ro", holders=frozenset({"a", "b"})), "lists access of a"),
            (BackendExport("v", "rw", sessions=frozenset({"a"})), "lists a session of a"),
        ):
            with self.listing(export), self.assertRaisesRegex(exception.BackendError, said):
                self.fence()

    def test_second_observation_counts(self):
        late = [[], [BackendExport("v", "rw", sessions=frozenset({"a"}))]]
        with (
            mock.patch.object(self.driver, "list_volume_exports", side_effect=late),
            self.assertRaisesRegex(exception.BackendError, "a session of a"),
        ):
            self.fence()

    def test_access_that_another_attachment_shares_is_no_proof(self):
        same_host = dataclasses.replace(DEAD, connector={"host": "dead"})
        with self.assertRaisesRegex(exception.BackendError, "Fence the whole host"):
            self.fence([same_host])

    def test_hanging_session_is_evicted_and_unreachable_backend_is_not(self):
        with self.driver.failing("revoke"):
            self.assertEqual("proved", self.fence()["result"])
        away = exception.BackendUnreachable("no answer")
        with (
            self.driver.raising(away, "revoke"),
            self.assertRaises(exception.BackendUnreachable),
        ):
            self.fence()
        self.assertEqual(1, [call.method for call in self.driver.calls].count("revoke_all_except"))

    def test_driver_without_listing_asserts_or_refuses(self):
        self.driver = backends.without_abilities(self.driver)
        with self.assertRaisesRegex(exception.BackendError, "Turn the host off"):
            self.fence()
        self.driver.promises = Promises(session_end=True)
        self.assertEqual("asserted", self.fence()["result"])

    def test_ability_follows_from_declarations(self):
        listing = type(
            "Listing", (abilities.Audit,), {"promises": Promises(complete_listing=True)}
        )
        listing.__abstractmethods__ = frozenset()
        for driver, expected in (
            (self.driver, Fencing.PROVED),
            (listing(), Fencing.PROVED),
            (mock.Mock(promises=Promises(complete_listing=True)), Fencing.NONE),
            (mock.Mock(promises=Promises(detach_proof=True)), Fencing.ASSERTED),
            (mock.Mock(promises=Promises()), Fencing.NONE),
        ):
            self.assertEqual(expected, fencing.get_fencing(driver))

# SPDX-License-Identifier: Apache-2.0
"""What is due at a host is told whole, and what its agent has done goes on from there."""

import unittest
from unittest import mock

from attachd import exception
from attachd.context import RequestContext
from attachd.manager.agents import desired_state
from attachd.objects import connections
from attachd.rpc import manager_api
from attachd.tests import databases, hearing, keys, rows

HOST = "compute-1"
CONTEXT = RequestContext(overwrite=False)
INFO = {"driver_volume_type": "iscsi", "data": {"target_portal": "p", "auth_password": "s"}}


class _Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)
        self.volume = rows.add_volume(size_gib=3, shared_targets=True)["id"]

    def add(self, state, **values):
        values = {"agent": HOST, "generation": 2, "mode": "ro", "connection_info": INFO, **values}
        return rows.add_attachment(self.volume, state, **values)["id"]


class DueTest(_Case):
    def test_a_duty_says_all_that_a_host_needs(self):
        mine = self.add("connected")
        (duty,) = desired_state.list_desired(HOST)
        expected = {
            "attachment_id": mine,
            "volume_id": self.volume,
            "target_state": "connected",
            "complete": False,
            "connection_info": connections.flat(rows.attachment(mine)),
            "mode": "ro",
            "size_gib": 3,
            "generation": 2,
            "shared_targets": True,
            "service_uuid": connections.service_uuid("here@fake"),
        }
        self.assertEqual(expected, duty)
        self.assertEqual("s", duty["connection_info"]["auth_password"])

    def test_the_state_says_what_is_wanted(self):
        wanted = {"connected": ("connected", False), "attached": ("connected", True)}
        wanted["withdrawing"] = ("disconnected", False)
        for state, expected in wanted.items():
            (duty,) = desired_state.list_desired(HOST, self.add(state))
            self.assertEqual(expected, (duty["target_state"], duty["complete"]), state)

    def test_nothing_is_due_for_another_host(self):
        self.add("connected", agent="compute-2")
        self.assertEqual([], desired_state.list_desired(HOST))


class LostKeyTest(_Case):
    """What an agent hears of connections that nobody can open."""

    def setUp(self):
        super().setUp()
        file = keys.use(self)
        self.lost = {state: self.add(state) for state in ("attached", "withdrawing")}
        keys.lose(file)
        self.kept = self.add("connected")

    def test_all_it_has_to_know_to_let_devices_be(self):
        told = {each["attachment_id"]: each for each in desired_state.list_desired(HOST)}
        self.assertEqual({*self.lost.values(), self.kept}, set(told))
        for each in self.lost.values():
            self.assertEqual({}, told[each]["connection_info"])
        self.assertEqual("s", told[self.kept]["connection_info"]["auth_password"])

    def test_why_it_cannot_make_a_device(self):
        with self.assertRaises(exception.SecretUnreadable):
            desired_state.list_desired(HOST, self.lost["attached"])

    def test_that_it_is_to_take_a_device_away(self):
        (duty,) = desired_state.list_desired(HOST, self.lost["withdrawing"])
        self.assertEqual(("disconnected", {}), (duty["target_state"], duty["connection_info"]))


class CompletedTest(_Case):
    def setUp(self):
        super().setUp()
        self.heard = hearing.use(self).kinds

    def test_an_attach_is_told_of_when_its_device_is_there_and_only_once(self):
        mine = self.add("connected")
        for _ in range(2):
            desired_state.record_connected(mine, HOST, 2, "/dev/sdb")
        self.assertEqual(["volume.attach.end"], self.heard())
        self.assertEqual("attached", rows.attachment(mine)["state"])

    def test_what_is_refused_is_not_told_of(self):
        mine = self.add("connected")
        for host, generation in (("compute-2", 2), (HOST, 1)):
            with self.assertRaises(exception.InvalidTransition):
                desired_state.record_connected(mine, host, generation, "/dev/sdb")
        self.assertEqual([], self.heard())


class ReleasedTest(_Case):
    def setUp(self):
        super().setUp()
        patched = mock.patch.object(manager_api, "process_pending")
        self.process_pending = patched.start()
        self.addCleanup(patched.stop)

    def test_the_backend_is_told_to_shut_the_host_out(self):
        mine = self.add("withdrawing")
        desired_state.record_disconnected(CONTEXT, mine, HOST, 2)
        self.assertEqual("disconnecting", rows.attachment(mine)["state"])
        (_context, asked) = self.process_pending.call_args.args
        self.assertEqual((mine, "here@fake"), (asked.id, asked.backend))

    def test_a_backend_that_cannot_be_told_finds_out_by_itself(self):
        mine = self.add("withdrawing")
        self.process_pending.side_effect = exception.Unavailable(reason="gone")
        desired_state.record_disconnected(CONTEXT, mine, HOST, 2)
        self.assertEqual("disconnecting", rows.attachment(mine)["state"])

    def test_the_backend_is_not_told_what_is_not_so(self):
        mine = self.add("attached")
        with self.assertRaises(exception.InvalidTransition):
            desired_state.record_disconnected(CONTEXT, mine, HOST, 2)
        self.process_pending.assert_not_called()

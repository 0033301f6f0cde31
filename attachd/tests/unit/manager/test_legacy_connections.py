# SPDX-License-Identifier: Apache-2.0
"""Hosts are let in before anybody says what for, and shut out whoever asks for it."""

import unittest

from attachd import exception
from attachd.db.attachments import legacy
from attachd.manager import detach, legacy_connections
from attachd.tests import backends, rows
from attachd.tests.rows import CONNECTOR, OTHER_CONNECTOR

SERVER = "11111111-1111-4111-8111-111111111111"
OTHER_SERVER = "22222222-2222-4222-8222-222222222222"


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.volume_id = rows.add_volume(provider={"lun": 7})["id"]

    def multiattach(self):
        rows.change_volume(self.volume_id, multiattach=True)

    def open(self, connector=CONNECTOR):
        who = (rows.PROJECT, "u")
        return legacy_connections.initialize(self.backend, self.volume_id, *who, connector)

    def close(self, connector=CONNECTOR, *attachment_ids):
        return legacy_connections.terminate(
            self.backend, self.volume_id, connector, attachment_ids
        )

    def hold(self):
        legacy.reserve(self.volume_id, rows.PROJECT, "u")

    def attach(self, server=SERVER, host=None):
        claim = {"project_id": rows.PROJECT, "user_id": "u", "instance_uuid": server}
        claim |= {"host": host, "mountpoint": "m", "mode": "rw"}
        return legacy.attach(self.volume_id, claim)["id"]

    def detach(self, attachment_id):
        return detach.detach(self.backend, attachment_id, self.volume_id)

    def status(self):
        return rows.volume(self.volume_id)["status"]

    def held(self):
        return [(row["kind"], row["state"]) for row in rows.attachments(self.volume_id)]


class OpenTest(Case):
    def test_the_driver_lets_the_host_in_and_the_caller_is_told_how(self):
        answer = self.open()
        (row,) = rows.attachments(self.volume_id)
        (handed,) = self.driver.handed
        self.assertEqual(row["id"], handed.export.attachment_id)
        self.assertEqual((row["secret"], 32), (handed.export.secret, len(row["secret"])))
        self.assertEqual(row["connection_info"], answer["connection_info"])
        self.assertEqual([("connection", "connected")], self.held())
        self.assertEqual("attaching", self.status())

    def test_before_the_driver_is_touched_the_row_says_what_is_begun(self):
        seen = []
        self.driver.script = lambda _call: seen.extend(rows.attachments(self.volume_id))
        self.open()
        (row,) = seen
        self.assertEqual(("connecting", 1, CONNECTOR), tuple(
            row[name] for name in ("state", "generation", "connector")))  # fmt: skip
        self.assertIsNotNone(row["owner"])

    def test_the_same_host_gets_the_same_answer_whatever_else_it_says(self):
        first = self.open()
        self.assertEqual(first, self.open({**CONNECTOR, "multipath": True, "ip": "192.0.2.1"}))
        self.assertEqual(["grant"], self.driver.methods)

    def test_another_host_gets_a_connection_of_its_own(self):
        self.open()
        self.open(OTHER_CONNECTOR)
        self.open({**CONNECTOR, "initiator": "iqn.2026-01.org.example:another"})
        self.assertEqual(3, len(self.driver.granted()))

    def test_ports_are_the_same_in_any_order(self):
        self.open({"host": "h", "wwpns": ["1", "2"]})
        self.open({"host": "h", "wwpns": ["2", "1"]})
        self.open({"host": "h", "wwpns": ["2", "3"]})
        self.assertEqual(2, len(self.driver.granted()))

    def test_a_read_only_volume_is_only_read(self):
        rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        self.assertEqual("ro", self.open()["mode"])
        self.assertEqual("ro", self.driver.handed[0].export.mode)

    def test_a_volume_of_the_attachments_api_is_not_shared(self):
        mine = rows.add_attachment(self.volume_id, "reserved")["id"]
        with self.assertRaisesRegex(exception.InvalidVolume, f"attachment {mine}"):
            self.open()
        self.multiattach()
        self.open()

    def test_an_attached_volume_is_connected_once_more(self):
        self.open()
        mine = self.attach()
        self.open(OTHER_CONNECTOR)
        self.assertEqual({mine}, {r["serves"] for r in rows.attachments(self.volume_id)} - {None})
        self.assertEqual("in-use", self.status())

    def test_what_is_just_being_detached_is_not_connected_again(self):
        rows.add_attachment(self.volume_id, "disconnecting", kind="legacy")
        with self.assertRaisesRegex(exception.InvalidVolume, "is held by attachment"):
            self.open()

    def test_a_volume_in_another_state_is_not_connected(self):
        for state in ("creating", "extending", "deleting", "maintenance", "error"):
            self.volume_id = rows.add_volume(state)["id"]
            with self.assertRaisesRegex(exception.InvalidVolume, state):
                self.open()
            self.assertEqual([], self.held())

    def test_a_volume_that_somebody_may_still_reach_is_not_connected(self):
        rows.add_attachment(self.volume_id, "connect_unknown", kind="connection", host="x")
        rows.change_attachment(rows.attachments(self.volume_id)[0]["id"], connector={"host": "x"})
        with self.assertRaisesRegex(exception.InvalidVolume, "error"):
            self.open()

    def test_a_failure_keeps_the_hold_and_can_be_repeated(self):
        self.hold()
        with (
            self.driver.failing("grant"),
            self.assertRaises(exception.InitializeConnectionFailed) as failed,
        ):
            self.open()
        self.assertRegex(str(failed.exception), f"{self.volume_id}.*compute-1.*shelf burns")
        self.assertEqual("attaching", self.status())
        self.assertEqual([("hold", "held"), ("connection", "connect_failed")], self.held())
        self.open()
        self.assertEqual([("hold", "held"), ("connection", "connected")], self.held())

    def test_a_failure_without_a_hold_gives_the_volume_back(self):
        with self.driver.failing("grant"), self.assertRaises(exception.InitializeConnectionFailed):
            self.open()
        self.assertEqual("available", self.status())

    def test_what_may_have_been_granted_is_granted_again_as_it_was(self):
        with (
            self.driver.failing("grant", "revoke"),
            self.assertRaises(exception.InitializeConnectionFailed),
        ):
            self.open()
        self.assertEqual("error", self.status())
        self.open({**CONNECTOR, "ip": "192.0.2.9"})
        self.assertEqual(CONNECTOR, self.driver.handed[-1].export.connector)
        self.assertEqual("attaching", self.status())


class CloseTest(Case):
    def test_the_host_is_shut_out_and_the_hold_given_back(self):
        self.hold()
        self.open()
        self.assertEqual(1, self.close())
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], self.held())
        self.assertEqual("available", self.status())

    def test_what_is_not_there_is_closed_and_gives_nothing_back(self):
        self.hold()
        self.assertEqual(0, self.close())
        self.assertEqual("attaching", self.status())

    def test_closing_twice_gives_back_once(self):
        self.multiattach()
        self.hold()
        self.open()
        self.hold()
        self.assertEqual([1, 0], [self.close(), self.close()])
        self.assertEqual([("hold", "held")], self.held())

    def test_what_somebody_else_took_is_not_given_back(self):
        self.multiattach()
        legacy.reserve(self.volume_id, rows.PROJECT, "other")
        self.open()
        self.close()
        self.assertEqual([("hold", "held")], self.held())

    def test_only_those_that_are_named_are_closed(self):
        self.open()
        self.open(OTHER_CONNECTOR)
        (one, two) = rows.attachments(self.volume_id)
        closed = legacy_connections.terminate(self.backend, self.volume_id, None, (), [two["id"]])
        self.assertEqual((1, {one["id"]}), (closed, self.driver.granted()))

    def test_a_host_of_several_attachments_is_shut_out_when_they_are_detached(self):
        self.multiattach()
        attached = []
        for server in (SERVER, OTHER_SERVER):
            self.hold()
            self.open()
            attached.append(self.attach(server))
        self.assertEqual(2, len(self.driver.granted()))
        self.assertEqual(0, self.close(CONNECTOR, *attached))
        for left, mine in ((1, attached[0]), (0, attached[1])):
            self.detach(mine)
            self.assertEqual(left, len(self.driver.granted()))
        self.assertEqual("available", self.status())

    def test_what_never_came_to_be_is_closed_beside_what_is_used(self):
        self.multiattach()
        self.open()
        mine = self.attach()
        self.hold()
        with self.driver.failing("grant"), self.assertRaises(exception.InitializeConnectionFailed):
            self.open()
        self.assertEqual(1, self.close())
        self.assertEqual([("connection", "connected"), ("legacy", "attached")], self.held())
        self.assertEqual(0, self.close(OTHER_CONNECTOR, mine))

    def test_an_attached_volume_stays_attached_without_its_connection(self):
        self.open()
        mine = self.attach()
        self.assertEqual(1, self.close(CONNECTOR, mine))
        self.assertEqual([("legacy", "attached")], self.held())
        self.assertEqual("in-use", self.status())

    def test_only_that_host_is_shut_out(self):
        self.open()
        self.open(OTHER_CONNECTOR)
        self.close()
        (handed,) = [each for each in self.driver.handed if each.method == "revoke"]
        self.assertEqual([OTHER_CONNECTOR], [each.connector for each in handed.others])
        self.assertEqual(1, len(self.driver.granted()))
        self.assertEqual("attaching", self.status())

    def test_without_a_connector_all_that_nobody_else_uses_are_closed(self):
        self.multiattach()
        self.open()
        mine = self.attach()
        self.open(OTHER_CONNECTOR)
        self.assertEqual(1, self.close(None))
        self.assertEqual({"connection", "legacy"}, {kind for kind, _state in self.held()})
        self.assertEqual(1, self.close(None, mine))
        self.assertEqual([("legacy", "attached")], self.held())

    def test_a_hold_of_somebody_else_survives(self):
        self.multiattach()
        self.open()
        mine = self.attach()
        self.hold()
        self.close(CONNECTOR, mine)
        self.assertEqual([("legacy", "attached"), ("hold", "held")], self.held())

    def test_the_hold_of_a_connection_that_was_never_used_goes_with_it(self):
        self.multiattach()
        self.attach()
        self.hold()
        self.open(OTHER_CONNECTOR)
        self.close(OTHER_CONNECTOR)
        self.assertEqual([("legacy", "attached")], self.held())

    def test_a_failure_is_told_and_can_be_repeated(self):
        self.hold()
        self.open()
        with (
            self.driver.failing("revoke"),
            self.assertRaisesRegex(exception.TerminateConnectionFailed, "compute-1.*shelf burns"),
        ):
            self.close()
        self.assertEqual([("hold", "held"), ("connection", "disconnect_failed")], self.held())
        self.assertEqual("attaching", self.status())
        self.close()
        self.assertEqual("available", self.status())
        self.assertEqual(set(), self.driver.granted())


class DetachTest(Case):
    """detaching.detach(), for what was made by the older calls."""

    def test_what_was_left_open_is_closed_first(self):
        self.open()
        self.open(OTHER_CONNECTOR)
        mine = self.attach()
        self.assertEqual([], self.detach(mine))
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], self.held())
        self.assertEqual("available", self.status())

    def test_without_any_connection_the_driver_is_not_asked(self):
        self.detach(self.attach())
        self.assertEqual([], self.driver.methods)
        self.assertEqual("available", self.status())

    def test_other_servers_keep_theirs(self):
        self.multiattach()
        self.open()
        mine = self.attach()
        self.open(OTHER_CONNECTOR)
        other = self.attach(OTHER_SERVER)
        self.assertEqual([other], [row["id"] for row in self.detach(mine)])
        (row,) = [each for each in rows.attachments(self.volume_id) if each["serves"]]
        self.assertEqual({row["id"]}, self.driver.granted())
        self.assertEqual("in-use", self.status())

    def test_a_failure_shows_in_the_attachment_and_can_be_repeated(self):
        self.open()
        mine = self.attach()
        with (
            self.driver.failing("revoke"),
            self.assertRaisesRegex(exception.DisconnectFailed, f"{mine}.*shelf burns"),
        ):
            self.detach(mine)
        self.assertEqual(
            [("connection", "disconnect_failed"), ("legacy", "disconnect_failed")], self.held()
        )
        self.assertEqual("error", self.status())
        self.detach(mine)
        self.assertEqual([], self.held())
        self.assertEqual(set(), self.driver.granted())

    def test_what_is_closed_is_not_spared_for_the_one_that_follows(self):
        self.multiattach()
        mine = rows.add_attachment(self.volume_id, "connected", instance_uuid=SERVER)["id"]
        self.open(OTHER_CONNECTOR)
        self.assertEqual(mine, self.attach())
        self.detach(mine)
        self.assertEqual([0, 0], [len(each.others) for each in self.driver.handed[1:]])

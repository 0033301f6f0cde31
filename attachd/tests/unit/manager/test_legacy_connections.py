# SPDX-License-Identifier: Apache-2.0
"""Connections of the older calls: initialize, terminate, detach."""

from attachd import exception
from attachd.db.attachments import legacy
from attachd.db.attachments.legacy import Creator
from attachd.manager import detach, legacy_connections
from attachd.tests.fixtures import backends, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR, OTHER_CONNECTOR

SERVER = "11111111-1111-4111-8111-111111111111"
OTHER_SERVER = "22222222-2222-4222-8222-222222222222"


class Case(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(provider={"lun": 7})["id"]

    def multiattach(self):
        db_rows.change_volume(self.volume_id, multiattach=True)

    def initialize(self, connector=CONNECTOR):
        creator = Creator(db_rows.PROJECT, "u")
        return legacy_connections.initialize(self.backend, self.volume_id, creator, connector)

    def terminate(self, connector=CONNECTOR, *attachment_ids):
        return legacy_connections.terminate(
            self.backend, self.volume_id, connector, attachment_ids
        )

    def reserve(self):
        legacy.reserve(self.volume_id, db_rows.PROJECT, "u")

    def attach(self, server=SERVER, host=None):
        claim = {"project_id": db_rows.PROJECT, "user_id": "u", "instance_uuid": server}
        claim |= {"host": host, "mountpoint": "m", "mode": "rw"}
        return legacy.attach(self.volume_id, claim)["id"]

    def detach(self, attachment_id):
        return detach.detach(self.backend, attachment_id, self.volume_id)

    def status(self):
        return db_rows.get_volume(self.volume_id)["status"]

    def held(self):
        return [(row["kind"], row["state"]) for row in db_rows.list_attachments(self.volume_id)]


class InitializeTest(Case):
    def test_initialize_grants_access_and_returns_connection(self):
        answer = self.initialize()
        (row,) = db_rows.list_attachments(self.volume_id)
        (handed,) = self.driver.driver_calls
        self.assertEqual(row["id"], handed.export.attachment_id)
        self.assertEqual((row["secret"], 32), (handed.export.secret, len(row["secret"])))
        self.assertEqual(row["connection_info"], answer["connection_info"])
        self.assertEqual([("connection", "connected")], self.held())
        self.assertEqual("attaching", self.status())

    def test_initialize_stores_row_before_driver_call(self):
        seen = []
        self.driver.script = lambda _call: seen.extend(
            [*db_rows.list_attachments(self.volume_id), db_rows.get_volume(self.volume_id)]
        )
        self.initialize()
        row, volume = seen
        self.assertEqual(("connecting", 1, CONNECTOR), tuple(
            row[name] for name in ("state", "generation", "connector")))  # fmt: skip
        self.assertIsNotNone(volume["lease_holder"])

    def test_initialize_same_host_again_returns_same_answer(self):
        first = self.initialize()
        again = self.initialize({**CONNECTOR, "multipath": True, "ip": "192.0.2.1"})
        self.assertEqual({**first, "is_repeated": True}, again)
        self.assertEqual(["grant"], self.driver.methods)

    def test_initialize_other_host_makes_second_connection(self):
        self.initialize()
        self.initialize(OTHER_CONNECTOR)
        self.initialize({**CONNECTOR, "initiator": "iqn.2026-01.org.example:another"})
        self.assertEqual(3, len(self.driver.granted()))

    def test_initialize_ignores_order_of_ports(self):
        self.initialize({"host": "h", "wwpns": ["1", "2"]})
        self.initialize({"host": "h", "wwpns": ["2", "1"]})
        self.initialize({"host": "h", "wwpns": ["2", "3"]})
        self.assertEqual(2, len(self.driver.granted()))

    def test_initialize_readonly_volume_grants_ro(self):
        db_rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        self.assertEqual("ro", self.initialize()["mode"])
        self.assertEqual("ro", self.driver.driver_calls[0].export.mode)

    def test_initialize_volume_with_attachment_is_refused(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "reserved")["id"]
        with self.assertRaisesRegex(exception.InvalidVolume, f"attachment {attachment_id}"):
            self.initialize()
        self.multiattach()
        self.initialize()

    def test_initialize_in_use_volume_adds_connection(self):
        self.initialize()
        attachment_id = self.attach()
        self.initialize(OTHER_CONNECTOR)
        self.assertEqual(
            {attachment_id},
            {r["parent_id"] for r in db_rows.list_attachments(self.volume_id)} - {None},
        )
        self.assertEqual("in-use", self.status())

    def test_initialize_detaching_volume_is_refused(self):
        db_rows.add_attachment(self.volume_id, "disconnecting", kind="legacy")
        with self.assertRaisesRegex(exception.InvalidVolume, "is held by attachment"):
            self.initialize()

    def test_initialize_volume_in_other_state_is_refused(self):
        for state in ("creating", "extending", "deleting", "maintenance", "error"):
            self.volume_id = db_rows.add_volume(state)["id"]
            with self.assertRaisesRegex(exception.InvalidVolume, state):
                self.initialize()
            self.assertEqual([], self.held())

    def test_initialize_volume_with_doubtful_access_is_refused(self):
        db_rows.add_attachment(self.volume_id, "connect_unknown", kind="connection", host="x")
        db_rows.change_attachment(
            db_rows.list_attachments(self.volume_id)[0]["id"], connector={"host": "x"}
        )
        with self.assertRaisesRegex(exception.InvalidVolume, "error"):
            self.initialize()

    def test_initialize_failure_keeps_reservation_and_can_be_repeated(self):
        self.reserve()
        with (
            self.driver.failing("grant"),
            self.assertRaises(exception.InitializeConnectionFailed) as failed,
        ):
            self.initialize()
        self.assertRegex(str(failed.exception), f"{self.volume_id}.*compute-1.*backend failed")
        self.assertEqual("attaching", self.status())
        self.assertEqual([("hold", "held"), ("connection", "connect_failed")], self.held())
        self.initialize()
        self.assertEqual([("hold", "held"), ("connection", "connected")], self.held())

    def test_initialize_failure_without_reservation_frees_volume(self):
        with self.driver.failing("grant"), self.assertRaises(exception.InitializeConnectionFailed):
            self.initialize()
        self.assertEqual("available", self.status())

    def test_initialize_retry_in_doubt_uses_stored_connector(self):
        with (
            self.driver.failing("grant", "revoke"),
            self.assertRaises(exception.InitializeConnectionFailed),
        ):
            self.initialize()
        self.assertEqual("error", self.status())
        self.initialize({**CONNECTOR, "ip": "192.0.2.9"})
        self.assertEqual(CONNECTOR, self.driver.driver_calls[-1].export.connector)
        self.assertEqual("attaching", self.status())


class TerminateTest(Case):
    def test_terminate_revokes_access_and_releases_reservation(self):
        self.reserve()
        self.initialize()
        self.assertEqual(1, self.terminate())
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], self.held())
        self.assertEqual("available", self.status())

    def test_terminate_missing_connection_releases_nothing(self):
        self.reserve()
        self.assertEqual(0, self.terminate())
        self.assertEqual("attaching", self.status())

    def test_terminate_twice_releases_once(self):
        self.multiattach()
        self.reserve()
        self.initialize()
        self.reserve()
        self.assertEqual([1, 0], [self.terminate(), self.terminate()])
        self.assertEqual([("hold", "held")], self.held())

    def test_terminate_keeps_reservation_of_other_caller(self):
        self.multiattach()
        legacy.reserve(self.volume_id, db_rows.PROJECT, "other")
        self.initialize()
        self.terminate()
        self.assertEqual([("hold", "held")], self.held())

    def test_terminate_closes_only_named_connections(self):
        self.initialize()
        self.initialize(OTHER_CONNECTOR)
        (one, two) = db_rows.list_attachments(self.volume_id)
        closed = legacy_connections.terminate(self.backend, self.volume_id, None, (), [two["id"]])
        self.assertEqual((1, {one["id"]}), (closed, self.driver.granted()))

    def test_terminate_host_of_several_attachments_waits_for_detach(self):
        self.multiattach()
        attached = []
        for server in (SERVER, OTHER_SERVER):
            self.reserve()
            self.initialize()
            attached.append(self.attach(server))
        self.assertEqual(2, len(self.driver.granted()))
        self.assertEqual(0, self.terminate(CONNECTOR, *attached))
        for left, attachment_id in ((1, attached[0]), (0, attached[1])):
            self.detach(attachment_id)
            self.assertEqual(left, len(self.driver.granted()))
        self.assertEqual("available", self.status())

    def test_terminate_closes_failed_connection_beside_used_one(self):
        self.multiattach()
        self.initialize()
        attachment_id = self.attach()
        self.reserve()
        with self.driver.failing("grant"), self.assertRaises(exception.InitializeConnectionFailed):
            self.initialize()
        self.assertEqual(1, self.terminate())
        self.assertEqual([("connection", "connected"), ("legacy", "attached")], self.held())
        self.assertEqual(0, self.terminate(OTHER_CONNECTOR, attachment_id))

    def test_terminate_attached_volume_keeps_it_attached(self):
        self.initialize()
        attachment_id = self.attach()
        self.assertEqual(1, self.terminate(CONNECTOR, attachment_id))
        self.assertEqual([("legacy", "attached")], self.held())
        self.assertEqual("in-use", self.status())

    def test_terminate_revokes_only_named_host(self):
        self.initialize()
        self.initialize(OTHER_CONNECTOR)
        self.terminate()
        (handed,) = [
            driver_call
            for driver_call in self.driver.driver_calls
            if driver_call.method == "revoke"
        ]
        self.assertEqual([OTHER_CONNECTOR], [other.connector for other in handed.others])
        self.assertEqual(1, len(self.driver.granted()))
        self.assertEqual("attaching", self.status())

    def test_terminate_without_connector_closes_all_unused(self):
        self.multiattach()
        self.initialize()
        attachment_id = self.attach()
        self.initialize(OTHER_CONNECTOR)
        self.assertEqual(1, self.terminate(None))
        self.assertEqual({"connection", "legacy"}, {kind for kind, _state in self.held()})
        self.assertEqual(1, self.terminate(None, attachment_id))
        self.assertEqual([("legacy", "attached")], self.held())

    def test_terminate_keeps_hold_of_other_caller(self):
        self.multiattach()
        self.initialize()
        attachment_id = self.attach()
        self.reserve()
        self.terminate(CONNECTOR, attachment_id)
        self.assertEqual([("legacy", "attached"), ("hold", "held")], self.held())

    def test_terminate_unused_connection_releases_its_hold(self):
        self.multiattach()
        self.attach()
        self.reserve()
        self.initialize(OTHER_CONNECTOR)
        self.terminate(OTHER_CONNECTOR)
        self.assertEqual([("legacy", "attached")], self.held())

    def test_terminate_failure_has_reason_and_can_be_repeated(self):
        self.reserve()
        self.initialize()
        with (
            self.driver.failing("revoke"),
            self.assertRaisesRegex(
                exception.TerminateConnectionFailed, "compute-1.*backend failed"
            ),
        ):
            self.terminate()
        self.assertEqual([("hold", "held"), ("connection", "disconnect_failed")], self.held())
        self.assertEqual("attaching", self.status())
        self.terminate()
        self.assertEqual("available", self.status())
        self.assertEqual(set(), self.driver.granted())

    def test_repeated_terminate_of_a_volume_that_is_detached_keeps_its_status(self):
        self.initialize()
        attachment_id = self.attach()
        legacy.begin_detaching(self.volume_id)
        with (
            self.driver.failing("revoke"),
            self.assertRaises(exception.TerminateConnectionFailed),
        ):
            self.terminate(CONNECTOR, attachment_id)
        self.terminate(CONNECTOR, attachment_id)
        self.assertEqual([("legacy", "attached")], self.held())
        self.assertEqual("detaching", self.status())
        self.detach(attachment_id)
        self.assertEqual("available", self.status())


class DetachTest(Case):
    """detach.detach() of attachments that the older calls have made."""

    def test_detach_closes_open_connections_first(self):
        self.initialize()
        self.initialize(OTHER_CONNECTOR)
        attachment_id = self.attach()
        self.assertEqual([], self.detach(attachment_id))
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], self.held())
        self.assertEqual("available", self.status())

    def test_detach_without_connection_skips_driver(self):
        self.detach(self.attach())
        self.assertEqual([], self.driver.methods)
        self.assertEqual("available", self.status())

    def test_detach_keeps_connections_of_other_servers(self):
        self.multiattach()
        self.initialize()
        attachment_id = self.attach()
        self.initialize(OTHER_CONNECTOR)
        other = self.attach(OTHER_SERVER)
        self.assertEqual([other], [row["id"] for row in self.detach(attachment_id)])
        (row,) = [
            attachment
            for attachment in db_rows.list_attachments(self.volume_id)
            if attachment["parent_id"]
        ]
        self.assertEqual({row["id"]}, self.driver.granted())
        self.assertEqual("in-use", self.status())

    def test_detach_failure_is_stored_in_attachment_and_can_be_repeated(self):
        self.initialize()
        attachment_id = self.attach()
        with (
            self.driver.failing("revoke"),
            self.assertRaisesRegex(exception.DisconnectFailed, f"{attachment_id}.*backend failed"),
        ):
            self.detach(attachment_id)
        self.assertEqual(
            [("connection", "disconnect_failed"), ("legacy", "disconnect_failed")], self.held()
        )
        self.assertEqual("error", self.status())
        self.detach(attachment_id)
        self.assertEqual([], self.held())
        self.assertEqual(set(), self.driver.granted())

    def test_detach_spares_no_closed_connection_in_next_revoke(self):
        self.multiattach()
        attachment_id = db_rows.add_attachment(self.volume_id, "connected", instance_uuid=SERVER)[
            "id"
        ]
        self.initialize(OTHER_CONNECTOR)
        self.assertEqual(attachment_id, self.attach())
        self.detach(attachment_id)
        self.assertEqual(
            [0, 0], [len(driver_call.others) for driver_call in self.driver.driver_calls[1:]]
        )

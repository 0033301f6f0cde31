# SPDX-License-Identifier: Apache-2.0
"""Requests stored in rows for later execution, and their refusals."""

from attachd import exception
from attachd.db.attachments import async_requests, duplicates
from attachd.states import AttachmentState
from attachd.tests.fixtures import databases, db_rows

SERVER = "11111111-1111-1111-1111-111111111111"


class Case(databases.DatabaseCase):
    def attachment(self, state="reserved", volume=None, **values):
        volume = volume or db_rows.add_volume()["id"]
        return db_rows.add_attachment(volume, state, instance_uuid=SERVER, **values)

    def now(self, row):
        return db_rows.get_attachment(row["id"])


class ConnectTest(Case):
    def connect(
        self, row, connector=db_rows.CONNECTOR, how=async_requests.connect_shared, **denied_rule
    ):
        how(row["id"], row["volume_id"], connector, **denied_rule)

    def test_connect_stores_values_for_recovery(self):
        row = self.attachment()
        self.connect(row, {**db_rows.CONNECTOR, "mountpoint": "/dev/vdb"})
        kept = self.now(row)
        self.assertEqual(
            ("connecting", "compute-1", "/dev/vdb", "rw", None),
            tuple(kept[name] for name in ("state", "host", "mountpoint", "mode", "secret")),
        )
        self.assertEqual("/dev/vdb", kept["connector"]["mountpoint"])
        self.assertEqual("attaching", db_rows.get_volume(row["volume_id"])["status"])

    def test_connect_repeated_is_stored_once(self):
        row = self.attachment()
        self.connect(row)
        before = self.now(row)
        self.connect(row)
        self.assertEqual(before, self.now(row))

    def test_connect_of_other_host_is_refused(self):
        for state in ("connecting", "connected", "attached"):
            with self.subTest(state), self.assertRaises(exception.ConnectorConflict):
                self.connect(self.attachment(state), db_rows.OTHER_CONNECTOR)

    def test_connect_of_connected_attachment_raises_already_connected(self):
        for state in ("connected", "attached"):
            row = self.attachment(state)
            with self.subTest(state), self.assertRaises(duplicates.AlreadyConnected) as found:
                self.connect(row)
            self.assertEqual(row["id"], found.exception.row["id"])

    def test_connect_exclusive_is_refused_beside_other_connection(self):
        volume = db_rows.add_volume()["id"]
        self.attachment("connected", volume)
        second = self.attachment(volume=volume)
        with self.assertRaises(exception.NotMultiattach):
            self.connect(second, db_rows.OTHER_CONNECTOR, async_requests.connect_exclusive)
        self.assertEqual("reserved", self.now(second)["state"])
        self.connect(second, db_rows.OTHER_CONNECTOR)
        self.assertEqual("connecting", self.now(second)["state"])

    def test_connect_after_failure_checks_denied_rule(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        db_rows.add_attachment(volume, "attached", instance_uuid=SERVER[::-1])
        failed = self.attachment("connect_failed", volume)
        with self.assertRaisesRegex(exception.Forbidden, "a:rule"):
            self.connect(failed, denied_rule="a:rule")
        self.connect(failed)


class DisconnectTest(Case):
    def disconnect(self, row, states=None):
        async_requests.disconnect(row["id"], row["volume_id"], states)

    def test_disconnect_raises_generation(self):
        for state in AttachmentState:
            if state not in {AttachmentState.HELD, AttachmentState.DISCONNECTING}:
                row = self.attachment(state.value)
                self.disconnect(row)
                kept = self.now(row)
                self.assertEqual(("disconnecting", 1), (kept["state"], kept["generation"]))

    def test_disconnect_repeated_is_stored_once(self):
        row = self.attachment("attached")
        self.disconnect(row)
        before = self.now(row)
        self.disconnect(row, ["reserved"])
        self.assertEqual(before, self.now(row))

    def test_disconnect_in_other_state_than_allowed_is_refused(self):
        row = self.attachment("connected")
        with self.assertRaisesRegex(exception.InvalidTransition, "has become attaching"):
            self.disconnect(row, ["reserved", "connect_failed"])
        self.assertEqual("connected", self.now(row)["state"])
        self.disconnect(row, ["connected"])

    def test_disconnect_of_deleted_attachment_raises_not_found(self):
        row = self.attachment("connected")
        db_rows.remove_attachment(row["id"])
        with self.assertRaises(exception.AttachmentNotFound):
            self.disconnect(row)


class WithdrawTest(Case):
    def withdraw(self, row, states=None):
        async_requests.withdraw(row["id"], row["volume_id"], states)

    def test_withdraw_moves_to_withdrawing(self):
        for state in ("connected", "attached"):
            row = self.attachment(state, agent="compute-1", error="it was kept before")
            self.withdraw(row)
            kept = self.now(row)
            self.assertEqual(
                ("withdrawing", 1, None), (kept["state"], kept["generation"], kept["error"])
            )
            self.assertEqual("detaching", db_rows.get_volume(row["volume_id"])["status"])

    def test_withdraw_repeated_is_stored_once(self):
        row = self.attachment("attached", agent="compute-1")
        self.withdraw(row)
        before = self.now(row)
        self.withdraw(row, ["attached"])
        self.assertEqual(before, self.now(row))

    def test_withdraw_in_state_without_device_is_refused(self):
        live = {"connected", "attached", "withdrawing"}
        for state in {item.value for item in AttachmentState} - live:
            row = self.attachment(state, agent="compute-1")
            with self.subTest(state), self.assertRaises(exception.InvalidTransition):
                self.withdraw(row)
            self.assertEqual(state, self.now(row)["state"])

    def test_withdraw_without_agent_is_refused(self):
        row = self.attachment("attached")
        with self.assertRaisesRegex(exception.InvalidTransition, "no agent"):
            self.withdraw(row)
        self.assertEqual("attached", self.now(row)["state"])

    def test_withdraw_in_other_state_than_allowed_is_refused(self):
        row = self.attachment("attached", agent="compute-1")
        with self.assertRaisesRegex(exception.InvalidTransition, "has become attached"):
            self.withdraw(row, ["connected"])
        self.assertEqual("attached", self.now(row)["state"])


class BacklogTest(Case):
    def test_count_pending_counts_work_of_managers_in_the_project(self):
        for state in ("connecting", "disconnecting", "withdrawing", "reserved", "connected"):
            self.attachment(state)
        other = self.attachment("connecting")
        self.assertEqual(3, async_requests.count_pending(other["project_id"]))
        db_rows.change_attachment(other["id"], project_id="other")
        self.assertEqual(2, async_requests.count_pending(other["project_id"]))
        self.assertEqual(1, async_requests.count_pending("other"))

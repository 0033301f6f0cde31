# SPDX-License-Identifier: Apache-2.0
"""The desired state of a host, and the results that its agent reports."""

from unittest import mock

from attachd import exception
from attachd.context import RequestContext
from attachd.db.agents import restored_database
from attachd.manager.agents import desired_state
from attachd.objects import flat_connection, service_uuid
from attachd.rpc import manager_api
from attachd.tests.fixtures import (
    captured_notifications,
    databases,
    db_rows,
    fake_agent,
    key_files,
)

HOST = "compute-1"
CONTEXT = RequestContext(overwrite=False)
INFO = {"driver_volume_type": "iscsi", "data": {"target_portal": "p", "auth_password": "s"}}


class _Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(size_gib=3, shared_targets=True)["id"]

    def add(self, state, **values):
        values = {"agent": HOST, "generation": 2, "mode": "ro", "connection_info": INFO, **values}
        return db_rows.add_attachment(self.volume, state, **values)["id"]


class SharedTest(_Case):
    def test_volume_is_shared_while_another_host_may_have_it(self):
        first = self.add("attached")
        self.assertFalse(desired_state.get_desired(HOST, first)["shared"])
        self.add("attached")  # of the same host
        self.assertFalse(desired_state.get_desired(HOST, first)["shared"])
        for values in ({"agent": "other"}, {"agent": None, "host": "other"}):
            second = self.add("connected", **values)
            self.assertTrue(desired_state.get_desired(HOST, first)["shared"])
            db_rows.change_attachment(second, state="reserved")
            self.assertFalse(desired_state.get_desired(HOST, first)["shared"])


class SecretTest(_Case):
    """An attachment of Compute, whose key an agent gives to libvirt."""

    def setUp(self):
        super().setUp()
        self.attachment_id = self.add(
            "connected", agent=None, secret_agent=HOST, provider_secrets={"key": "QVE="}
        )

    def test_secret_has_key_each_time_and_no_lease(self):
        self.assertEqual(([], None), desired_state.list_desired(HOST))
        (listed,) = desired_state.list_secrets(HOST)
        self.assertEqual((False, {}), (listed["complete"], listed["connection_info"]))
        desired_state.record_connected(self.attachment_id, HOST, 2, "secret")
        self.assertEqual("connected", db_rows.get_attachment(self.attachment_id)["state"])
        desired = desired_state.get_desired(HOST, self.attachment_id)
        self.assertEqual(("in-libvirt", True), (desired["target_state"], desired["complete"]))
        self.assertEqual({"key": "QVE="}, desired["connection_info"])

    def test_secret_of_other_host_or_without_access_is_not_desired(self):
        self.assertIsNone(desired_state.get_desired("other", self.attachment_id))
        db_rows.change_attachment(self.attachment_id, state="disconnecting")
        self.assertIsNone(desired_state.get_desired(HOST, self.attachment_id))
        self.assertEqual([], desired_state.list_secrets(HOST))


class ListDesiredTest(_Case):
    def test_get_desired_contains_all_fields(self):
        attachment_id = self.add("connected")
        desired = desired_state.get_desired(HOST, attachment_id)
        expected = {
            "attachment_id": attachment_id,
            "volume_id": self.volume,
            "target_state": "connected",
            "complete": False,
            "connection_info": flat_connection(db_rows.get_attachment(attachment_id)),
            "secrets_withheld": False,
            "mode": "ro",
            "size_gib": 3,
            "generation": 2,
            "shared_targets": True,
            "service_uuid": service_uuid("here@fake"),
        }
        self.assertEqual({**expected, "shared": False}, desired)
        self.assertEqual("s", desired["connection_info"]["auth_password"])
        ((listed,), _lease) = desired_state.list_desired(HOST)
        self.assertEqual({**expected, "connection_info": {}, "secrets_withheld": True}, listed)

    def test_get_desired_after_report_of_device_withholds_secrets(self):
        attachment_id = self.add("connected")
        generation = db_rows.get_attachment(attachment_id)["generation"]
        desired_state.record_connected(attachment_id, HOST, generation, "/dev/sdb")
        for state in ("attached", "withdrawing"):
            db_rows.change_attachment(attachment_id, state=state)
            desired = desired_state.get_desired(HOST, attachment_id)
            self.assertTrue(desired["secrets_withheld"], state)
            self.assertNotIn("auth_password", desired["connection_info"])
            self.assertEqual("p", desired["connection_info"]["target_portal"])

    def test_get_desired_without_secrets_withholds_nothing(self):
        info = {"driver_volume_type": "iscsi", "data": {"target_portal": "p"}}
        desired = desired_state.get_desired(HOST, self.add("attached", connection_info=info))
        self.assertFalse(desired["secrets_withheld"])

    def test_list_desired_target_follows_state(self):
        wanted = {"connected": ("connected", False), "attached": ("connected", True)}
        wanted["withdrawing"] = ("disconnected", False)
        for state, expected in wanted.items():
            desired = desired_state.get_desired(HOST, self.add(state))
            self.assertEqual(expected, (desired["target_state"], desired["complete"]), state)

    def test_list_desired_of_other_host_is_empty(self):
        self.add("connected", agent="compute-2")
        self.assertEqual(([], None), desired_state.list_desired(HOST))
        attachment_id = self.add("connected", agent="compute-2")
        self.assertIsNone(desired_state.get_desired(HOST, attachment_id))

    def test_get_desired_with_orphan_device_elsewhere_raises_conflict(self):
        device = {"attachment_id": "a", "volume_id": self.volume, "path": "/dev/sdx"}
        fake_agent.report_agent("compute-2", devices=[{**device, "size_bytes": 1}])
        restored_database.begin(3600)
        for state in ("connected", "attached"):
            attachment_id = self.add(state)
            with self.assertRaisesRegex(exception.Conflict, "compute-2 still has.*/dev/sdx"):
                desired_state.get_desired(HOST, attachment_id)
            self.assertIn("compute-2", db_rows.get_attachment(attachment_id)["error"])
        withdrawn = desired_state.get_desired(HOST, self.add("withdrawing"))
        self.assertEqual("disconnected", withdrawn["target_state"])
        db_rows.change_volume(self.volume, multiattach=True)
        self.assertIsNotNone(desired_state.get_desired(HOST, attachment_id))


class LostKeyTest(_Case):
    """The desired state if connections cannot be decrypted."""

    def setUp(self):
        super().setUp()
        file = key_files.use(self)
        self.lost = {state: self.add(state) for state in ("attached", "withdrawing")}
        key_files.replace_all_keys(file)
        self.kept = self.add("connected")

    def test_list_desired_with_lost_key_has_all(self):
        result = [item["attachment_id"] for item in desired_state.list_desired(HOST)[0]]
        self.assertEqual({*self.lost.values(), self.kept}, set(result))

    def test_get_desired_with_lost_key_raises_and_its_attachment_shows_why(self):
        with self.assertRaises(exception.SecretUnreadable) as caught:
            desired_state.get_desired(HOST, self.lost["attached"])
        row = db_rows.get_attachment(self.lost["attached"])
        self.assertEqual(("attached", f"{caught.exception}"), (row["state"], row["error"]))

    def test_get_desired_with_lost_key_still_shows_disconnect(self):
        desired = desired_state.get_desired(HOST, self.lost["withdrawing"])
        self.assertEqual(
            ("disconnected", {}), (desired["target_state"], desired["connection_info"])
        )


class RecordConnectedTest(_Case):
    def setUp(self):
        super().setUp()
        self.event_types = captured_notifications.use(self).event_types

    def test_record_connected_sends_one_notification(self):
        attachment_id = self.add("connected")
        for _ in range(2):
            desired_state.record_connected(attachment_id, HOST, 2, "/dev/sdb")
        self.assertEqual(["volume.attach.end"], self.event_types())
        self.assertEqual("attached", db_rows.get_attachment(attachment_id)["state"])

    def test_record_connected_refused_sends_no_notification(self):
        attachment_id = self.add("connected")
        for host, generation in (("compute-2", 2), (HOST, 1)):
            with self.assertRaises(exception.InvalidTransition):
                desired_state.record_connected(attachment_id, host, generation, "/dev/sdb")
        self.assertEqual([], self.event_types())


class RecordDisconnectedTest(_Case):
    def setUp(self):
        super().setUp()
        self.process_pending = self.enterContext(mock.patch.object(manager_api, "process_pending"))

    def test_record_disconnected_calls_manager(self):
        attachment_id = self.add("withdrawing")
        desired_state.record_disconnected(CONTEXT, attachment_id, HOST, 2)
        self.assertEqual("disconnecting", db_rows.get_attachment(attachment_id)["state"])
        (_context, asked) = self.process_pending.call_args.args
        self.assertEqual((attachment_id, "here@fake"), (asked.id, asked.backend))

    def test_record_disconnected_with_manager_down_is_left_to_recovery(self):
        attachment_id = self.add("withdrawing")
        self.process_pending.side_effect = exception.Unavailable(reason="gone")
        desired_state.record_disconnected(CONTEXT, attachment_id, HOST, 2)
        self.assertEqual("disconnecting", db_rows.get_attachment(attachment_id)["state"])

    def test_record_disconnected_refused_does_not_call_manager(self):
        attachment_id = self.add("attached")
        with self.assertRaises(exception.InvalidTransition):
            desired_state.record_disconnected(CONTEXT, attachment_id, HOST, 2)
        self.process_pending.assert_not_called()

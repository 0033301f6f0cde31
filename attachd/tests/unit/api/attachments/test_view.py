# SPDX-License-Identifier: Apache-2.0
"""How attachments look in answers."""

import datetime
import unittest

from attachd.api.attachments import view
from attachd.objects import Attachment

MOMENT = datetime.datetime(2026, 1, 31)  # noqa: DTZ001  as the tables store it
ISCSI = {
    "driver_volume_type": "iscsi",
    "data": {"target_lun": 1, "auth_password": "secret", "access_mode": "ro", "encrypted": True},
}


def row(**values):
    return {
        "id": "a1",
        "state": "reserved",
        "instance_uuid": None,
        "volume_id": "v1",
        "attached_at": None,
        "mode": None,
        "connection_info": None,
        "connector": None,
        **values,
    }


class ViewTest(unittest.TestCase):
    def test_a_summary_has_four_keys(self):
        self.assertEqual(
            {"id": "a1", "status": "reserved", "instance": None, "volume_id": "v1"},
            view.summary(row(connection_info=ISCSI)),
        )

    def test_what_there_is_not_is_empty(self):
        shown = view.detail(row())
        self.assertEqual(("", ""), (shown["attached_at"], shown["detached_at"]))
        self.assertEqual("null", shown["attach_mode"])
        self.assertEqual({}, shown["connection_info"])

    def test_states_have_their_wire_names(self):
        self.assertEqual("attaching", view.summary(row(state="connected"))["status"])
        self.assertEqual("error_detaching", view.summary(row(state="disconnect_failed"))["status"])

    def test_the_connection_is_flat_and_complete(self):
        connected = row(connection_info=ISCSI, mode="ro", attached_at=MOMENT)
        shown = view.detail(connected)
        self.assertEqual((MOMENT, "ro"), (shown["attached_at"], shown["attach_mode"]))
        self.assertEqual(
            {
                "driver_volume_type": "iscsi",
                "attachment_id": "a1",
                "target_lun": 1,
                "auth_password": "secret",
                "access_mode": "ro",
                "encrypted": True,
                "cacheable": False,
                "qos_specs": None,
                "enforce_multipath": False,
            },
            shown["connection_info"],
        )

    def test_the_connector_says_whether_multipath_is_a_must(self):
        connected = row(connection_info=ISCSI, connector={"enforce_multipath": True})
        self.assertIs(True, view.detail(connected)["connection_info"]["enforce_multipath"])

    def test_what_was_just_connected_shows_the_state_before(self):
        before = Attachment.from_row(None, row())
        answer = {"connection_info": ISCSI, "mode": "ro"}
        shown = view.connected(before, answer, {"enforce_multipath": True})["attachment"]
        self.assertEqual(
            ("reserved", "null", ""),
            (shown["status"], shown["attach_mode"], shown["attached_at"]),
        )
        self.assertEqual("iscsi", shown["connection_info"]["driver_volume_type"])
        self.assertIs(True, shown["connection_info"]["enforce_multipath"])

    def test_remaining_attachments_need_none_of_their_secrets(self):
        without = {key: row()[key] for key in ("id", "state", "instance_uuid", "volume_id")}
        shown = view.remaining([Attachment.from_row(None, without)])
        self.assertEqual({"attachments": [view.summary(row())]}, shown)

    def test_lists_are_short_or_full(self):
        rows = [row(), row(id="a2")]
        self.assertEqual(["a1", "a2"], [each["id"] for each in view.listed(rows)["attachments"]])
        self.assertIn("connection_info", view.listed_in_full(rows)["attachments"][0])

# SPDX-License-Identifier: Apache-2.0
"""Formatting of values of the API."""

import unittest

from attachd.cli import formatting

INFO = {"driver_volume_type": "iscsi", "auth_password": "s3cret", "target_luns": [1, 2]}
ATTACHMENT = {
    "id": "a1",
    "volume_id": "v1",
    "instance": None,
    "status": "attaching",
    "connection_info": INFO,
}


class FormattingTest(unittest.TestCase):
    def test_connection_is_flat_with_both_ids(self):
        self.assertEqual(
            {
                "attachment_id": "a1",
                "auth_password": "s3cret",
                "driver_volume_type": "iscsi",
                "target_luns": [1, 2],
                "volume_id": "v1",
            },
            formatting.connection(ATTACHMENT),
        )

    def test_attachment_keys_are_sorted(self):
        self.assertEqual(
            sorted(formatting.attachment(ATTACHMENT)), list(formatting.attachment(ATTACHMENT))
        )

    def test_connection_of_reservation_shows_attachment(self):
        for empty in ({}, None):
            found = formatting.connection({**ATTACHMENT, "connection_info": empty})
            self.assertEqual(
                {
                    "attachment_id": "a1",
                    "instance": None,
                    "status": "attaching",
                    "volume_id": "v1",
                },
                found,
            )

    def test_attachment_values_override_connection_info(self):
        info = {**INFO, "status": "odd", "attachment_id": "odd"}
        found = formatting.attachment({**ATTACHMENT, "connection_info": info})
        self.assertEqual(("attaching", "a1"), (found["status"], found["attachment_id"]))

    def test_nested_values_are_json_for_people_and_objects_for_programs(self):
        names, (cell, plain) = formatting.shown({"luns": [1, None], "name": "x"})
        self.assertEqual(("luns", "name"), names)
        self.assertEqual("[1, null]", cell.human_readable())
        self.assertEqual([1, None], cell.machine_readable())
        self.assertEqual("x", plain)

    def test_row_has_none_for_missing_keys(self):
        self.assertEqual(("a1", None), formatting.row(ATTACHMENT, ["id", "attach_mode"]))

    def test_without_secrets_masks_nested_secrets(self):
        found = formatting.without_secrets({"device": {"info": dict(INFO)}})
        self.assertNotIn("s3cret", f"{found}")
        self.assertIn("iscsi", f"{found}")

# SPDX-License-Identifier: Apache-2.0
"""Undoing a set removes what is left, and then its row."""

from unittest import mock

from attachd.closed_hosts import set_undo
from attachd.db import models
from attachd.db.attachments import attachment_sets
from attachd.db.attachments.attachment_store import Reservation
from attachd.rpc import agent_api, manager_api
from attachd.tests.fixtures import api_context, db_rows, fake_agent


class SetUndoTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent("node-1")
        self.agent = self.enterContext(mock.patch.object(agent_api, "reconcile"))
        self.enterContext(mock.patch.object(manager_api, "process_pending"))
        self.set_id, self.ids = models.new_id(), [models.new_id() for _ in range(3)]
        asked = [
            Reservation(
                db_rows.add_volume()["id"],
                {"id": item, "project_id": db_rows.PROJECT, "agent": "node-1"},
                None,
            )
            for item in self.ids
        ]
        attachment_sets.reserve(self.set_id, asked, None)
        attachment_sets.begin_undo(self.set_id)

    def advance(self):
        row = attachment_sets.find(self.set_id)
        return set_undo.advance(api_context.make_context("admin"), row)

    def test_removal_of_all_begins_and_the_row_goes_last(self):
        db_rows.change_attachment(self.ids[0], state="attached")
        db_rows.change_attachment(self.ids[1], state="connected")
        self.assertFalse(self.advance())
        left = {row["id"]: row["state"] for row in db_rows.list_attachments()}
        self.assertEqual(dict.fromkeys(self.ids[:2], "withdrawing"), left)
        self.assertFalse(self.advance())
        self.assertEqual(2, self.agent.call_count)
        for attachment_id in self.ids[:2]:
            db_rows.remove_attachment(attachment_id)
        self.assertTrue(self.advance())
        self.assertIsNone(attachment_sets.find(self.set_id))

    def test_device_that_was_in_use_is_tried_again(self):
        db_rows.change_attachment(self.ids[0], state="attached", error="in use")
        self.advance()
        db_rows.change_attachment(self.ids[0], state="attached", error="in use")
        self.advance()
        self.assertEqual(2, self.agent.call_count)

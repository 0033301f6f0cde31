# SPDX-License-Identifier: Apache-2.0
"""Tests of waiting for fences; the manager is a function."""

from unittest import mock

from attachd.api.fencing import fence_attachments
from attachd.db.attachments import attachment_store, events
from attachd.objects import Attachment
from attachd.rpc import manager_api
from attachd.tests.fixtures import api_context, conf_fixture, db_rows

PROOF = {"result": "proved", "observed_at": ["now"], "observed": ["Nothing."]}


class FenceTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        self.ctx = api_context.make_context("admin")
        volume = db_rows.add_volume(host="here@fake#pool")["id"]
        self.row = db_rows.add_attachment(
            volume, "attached", connector={"host": "h"}, host="h", error="before"
        )
        self.attachment = Attachment.get(self.ctx, self.row["id"])

    def fence(self, process=None):
        """Fence the attachment; its manager does this."""
        with mock.patch.object(manager_api, "process_pending", side_effect=process):
            result = fence_attachments.fence(self.ctx, self.attachment)
        return result["result"], result["reason"], result["proof"]

    def prove(self, _ctx, _attachment):
        events.record_fenced(self.row, PROOF)
        db_rows.remove_attachment(self.row["id"])

    def test_proof_that_the_manager_stores_is_the_result(self):
        self.assertEqual(("proved", None, PROOF), self.fence(self.prove))
        # The attachment is gone; another process has fenced it.
        self.assertEqual(("proved", None, PROOF), self.fence())

    def test_failure_is_the_result(self):
        def fail(_ctx, attachment):
            db_rows.change_attachment(attachment.id, state="disconnect_failed", error="lost.")

        self.assertEqual(("failed", "lost.", None), self.fence(fail))

    def test_manager_that_cannot_begin_is_not_waited_for(self):
        conf_fixture.override(self, "attach_timeout", 3600, group="rpc")

        def postpone(_ctx, attachment):
            row = attachment_store.get(attachment.id, None)
            attachment_store.record_error(row, "The backend is down.")

        self.assertEqual(("pending", "The backend is down.", None), self.fence(postpone))

    def test_answer_comes_in_time(self):
        result, reason, proof = self.fence()
        self.assertEqual(("pending", None), (result, proof))
        self.assertIn("no answer in time", reason)

    def test_results_of_a_host_are_in_order(self):
        other = db_rows.add_attachment(
            self.row["volume_id"], "attached", connector={"host": "h"}, host="h"
        )

        def process(_ctx, attachment):
            if attachment.id == self.row["id"]:
                self.prove(_ctx, attachment)

        with mock.patch.object(manager_api, "process_pending", side_effect=process):
            results = fence_attachments.fence_host(self.ctx, "h")
        self.assertEqual(
            [(self.row["id"], "proved"), (other["id"], "pending")],
            [(item["attachment_id"], item["result"]) for item in results],
        )

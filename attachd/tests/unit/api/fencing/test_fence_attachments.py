# SPDX-License-Identifier: Apache-2.0
"""Tests of fencing attachments, without managers."""

from unittest import mock

from attachd import exception
from attachd.api.fencing import fence_attachments
from attachd.db.attachments import events
from attachd.db.cluster import services
from attachd.objects import Attachment
from attachd.rpc import manager_api
from attachd.tests.fixtures import api_context, db_rows

PROOF = {"result": "proved", "observed_at": ["now"], "observed": ["Nothing."]}


class FenceTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("admin")
        volume = db_rows.add_volume(host="here@fake#pool")["id"]
        self.row = db_rows.add_attachment(volume, "attached", connector={"host": "h"})
        self.attachment = Attachment.get(self.ctx, self.row["id"])

    def fence(self, **answer):
        with mock.patch.object(manager_api, "fence", **answer) as self.call:
            return fence_attachments.fence(self.ctx, self.attachment)

    def report(self, fencing):
        services.report(
            binary="attachd-manager",
            host="here@fake",
            availability_zone="nova",
            up=True,
            error=None,
            report={"capabilities": {"fencing": fencing}},
            supported=services.Versions("1.0", "1.0"),
        )

    def test_proof_of_manager_is_the_result(self):
        result = self.fence(return_value=PROOF)
        self.assertEqual(
            ("proved", None, PROOF),
            (
                result["result"],
                result["reason"],
                result["proof"],
            ),
        )
        row = db_rows.get_attachment(self.row["id"])
        self.assertEqual(("disconnecting", True), (row["state"], row["fenced"]))

    def test_errors_are_pending_or_failed(self):
        for error, expected in (
            (exception.Unavailable(reason="no broker"), "pending"),
            (exception.ManagerTimeout(backend="b", about="a"), "pending"),
            (exception.DisconnectFailed(attachment_id="a", reason="lost."), "failed"),
            (KeyError("k"), "pending"),
        ):
            result = self.fence(side_effect=error)
            self.assertEqual(expected, result["result"])
            self.assertTrue(result["reason"])
            self.assertIsNone(result["proof"])

    def test_call_that_is_one_too_many_waits(self):
        busy = exception.TooManyCalls(reason="busy")
        self.assertEqual("proved", self.fence(side_effect=[busy, busy, PROOF])["result"])
        self.assertEqual(3, self.call.call_count)

    def test_attachment_that_another_process_fenced_has_its_proof(self):
        gone = exception.AttachmentNotFound(attachment_id=self.row["id"])
        self.assertEqual("asserted", self.fence(side_effect=gone)["result"])
        events.record_fenced(self.row, PROOF)
        self.assertEqual(PROOF, self.fence(side_effect=gone)["proof"])
        db_rows.remove_attachment(self.row["id"])
        self.assertEqual(PROOF, self.fence(side_effect=gone)["proof"])
        self.call.assert_not_called()

    def test_connection_is_known_by_the_attachment_that_it_serves(self):
        served = db_rows.add_attachment(self.row["volume_id"], "attached", kind="legacy")["id"]
        values = {"kind": "connection", "parent_id": served, "host": "h"}
        db_rows.change_attachment(self.row["id"], **values)
        with mock.patch.object(manager_api, "fence", return_value=PROOF) as call:
            (result,) = fence_attachments.fence_host(self.ctx, "h")
        self.assertEqual((served, "proved"), (result["attachment_id"], result["result"]))
        self.assertEqual(self.row["id"], call.call_args.args[1].id)

    def test_legacy_attachment_that_gets_a_connection_meanwhile_is_not_fenced(self):
        served = db_rows.add_attachment(self.row["volume_id"], "attached", kind="legacy")["id"]
        values = {"kind": "connection", "parent_id": served, "host": "other"}
        db_rows.change_attachment(self.row["id"], **values)
        self.attachment = Attachment.get(self.ctx, served)
        result = self.fence()
        self.assertEqual("failed", result["result"])
        self.assertIn("host other is connected for it: fence that host", result["reason"])
        self.call.assert_not_called()

    def test_backend_that_cannot_fence_is_not_called(self):
        self.report("none")
        result = self.fence()
        self.assertEqual("failed", result["result"])
        self.assertIn("Turn the host off", result["reason"])
        self.assertEqual("attached", db_rows.get_attachment(self.row["id"])["state"])
        self.call.assert_not_called()
        self.assertEqual({"here@fake": "none"}, fence_attachments.get_fencing())

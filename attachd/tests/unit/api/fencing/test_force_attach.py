# SPDX-License-Identifier: Apache-2.0
"""Tests of force-attach, without managers."""

from unittest import mock

from attachd import exception
from attachd.api.fencing import fence_attachments, force_attach
from attachd.closed_hosts import fences
from attachd.db.attachments import events
from attachd.objects import Volume
from attachd.rpc.manager_api import Fencing
from attachd.tests.fixtures import api_context, db_rows, fake_agent

PROVED = {"result": "proved", "reason": None}
FAILED = {"result": "failed", "reason": "It is still there."}


class ForceAttachTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("admin")
        volume = db_rows.add_volume(host="here@fake#pool")["id"]
        self.row = db_rows.add_attachment(volume, "attached", connector={"host": "h"}, host="h")
        self.volume = Volume.get(self.ctx, volume)
        self.requested = {"instead_of": self.row["id"]}

    def replace(self, result=PROVED, fencing=Fencing.PROVED):
        reported = {"here@fake": fencing}
        with (
            mock.patch.object(fence_attachments, "fence", return_value=result) as self.fence,
            mock.patch.object(fences, "get_fencing", return_value=reported),
        ):
            force_attach.replace(self.ctx, self.volume, self.requested)

    def test_proved_attachment_may_be_replaced(self):
        self.replace()
        ((_ctx, attachment), _named) = self.fence.call_args
        self.assertEqual(self.row["id"], attachment.id)

    def test_attachment_without_proof_stays_in_the_way(self):
        with self.assertRaisesRegex(exception.Conflict, "of host h .* It is still there. Nothing"):
            self.replace(FAILED)

    def test_backend_that_cannot_fence_is_refused(self):
        with self.assertRaisesRegex(exception.Conflict, "here@fake cannot end the access"):
            self.replace(fencing=Fencing.NONE)
        self.fence.assert_not_called()

    def test_legacy_attachment_is_refused(self):
        db_rows.change_attachment(self.row["id"], kind="legacy")
        with self.assertRaisesRegex(exception.Conflict, "os-attach"):
            self.replace()

    def test_host_with_another_attachment_is_refused_before_anything_is_done(self):
        same_host = db_rows.add_attachment(self.volume.id, "attached", host="h")["id"]
        db_rows.add_attachment(self.volume.id, "attached", host="other")
        with self.assertRaisesRegex(exception.Conflict, f"{same_host}: fence the host"):
            self.replace()
        self.fence.assert_not_called()
        db_rows.remove_attachment(same_host)
        self.replace()

    def test_host_at_its_limit_is_refused_before_anything_is_done(self):
        fake_agent.report_agent("node-1", max_attachments=1)
        other = db_rows.add_attachment(db_rows.add_volume()["id"], "attached", agent="node-1")
        self.requested["host"] = "node-1"
        with self.assertRaises(exception.HostLimitExceeded):
            self.replace()
        self.fence.assert_not_called()
        db_rows.remove_attachment(other["id"])
        self.replace()

    def test_replaced_attachment_that_is_gone_was_fenced(self):
        db_rows.remove_attachment(self.row["id"])
        with self.assertRaises(exception.AttachmentNotFound):
            self.replace()
        events.record_fenced(self.row, {"result": "proved"})
        self.replace()
        self.fence.assert_not_called()

    def test_dry_run_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "instead_of.*dry run"):
            force_attach.refuse_dry_run(self.requested)

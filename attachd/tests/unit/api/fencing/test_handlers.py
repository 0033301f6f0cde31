# SPDX-License-Identifier: Apache-2.0
"""Tests of the handlers of fenced hosts."""

from unittest import mock

from attachd import exception
from attachd.api.fencing import fence_attachments, handlers
from attachd.tests.fixtures import api_context, db_rows, fake_agent

HOST = "node-1"
CONNECTOR = {"host": HOST}


class HandlersTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("admin")
        fake_agent.report_agent(HOST)
        self.row = db_rows.add_attachment(
            db_rows.add_volume()["id"], "attached", connector=CONNECTOR, host=HOST
        )
        found = mock.patch.object(fence_attachments, "fence", return_value=[])
        self.fenced = found.start()
        self.addCleanup(found.stop)

    def fence(self, reason="dead"):
        return handlers.fence(self.ctx, HOST, {"fence": {"reason": reason}})["fence"]

    def test_host_is_fenced_and_listed_until_fence_is_lifted(self):
        self.assertFalse(handlers.show(HOST)["host"]["fenced"])
        host = self.fence()["host"]
        self.assertEqual(
            ("dead", True, "up"), (host["reason"], host["fenced"], host["agent_state"])
        )
        self.assertEqual([self.row["id"]], host["attachment_ids"])
        self.assertEqual({"hosts": [host]}, handlers.index())
        ((_ctx, (attachment,)), _named) = self.fenced.call_args
        self.assertEqual(self.row["id"], attachment.id)
        self.assertFalse(handlers.unfence(self.ctx, HOST)["host"]["fenced"])
        self.assertEqual({"hosts": []}, handlers.index())

    def test_second_fence_keeps_reason(self):
        self.fence()
        self.assertEqual("dead", self.fence("still dead")["host"]["reason"])
        handlers.unfence(self.ctx, HOST)
        host = self.fence("dead again")["host"]
        self.assertEqual(("dead again", 2), (host["reason"], host["generation"]))

    def test_unknown_host_returns_404(self):
        with self.assertRaisesRegex(exception.NotFound, "node-3.*Check its name"):
            handlers.fence(self.ctx, "node-3", {"fence": {"reason": "dead"}})
        with self.assertRaisesRegex(exception.NotFound, "node-3"):
            handlers.show("node-3")

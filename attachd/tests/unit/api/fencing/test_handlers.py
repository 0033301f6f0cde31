# SPDX-License-Identifier: Apache-2.0
"""Tests of the handlers of fenced and drained hosts."""

from unittest import mock

import webob

from attachd import exception
from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.fencing import fence_attachments, handlers
from attachd.closed_hosts import drains
from attachd.db import host_fences
from attachd.tests.fixtures import api_context, db_rows, fake_agent

HOST = "node-1"
CONNECTOR = {"host": HOST}


class HandlersTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("admin")
        self.links = endpoint.Links(webob.Request.blank("/v3/hosts"), None)
        fake_agent.report_agent(HOST)
        self.row = db_rows.add_attachment(
            db_rows.add_volume()["id"], "attached", connector=CONNECTOR, host=HOST
        )
        found = mock.patch.object(fence_attachments, "fence_host", return_value=[])
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
        self.assertEqual({"hosts": [host]}, self.list())
        self.fenced.assert_called_once_with(self.ctx, HOST)
        self.assertFalse(handlers.unfence(self.ctx, HOST)["host"]["fenced"])
        self.assertEqual({"hosts": []}, self.list())

    def list(self, **query):
        """Return a page of the fenced hosts."""
        return handlers.index(query, mv.LATEST, self.links)

    def test_fenced_hosts_are_listed_by_pages(self):
        for number in range(3):
            host_fences.fence(f"h{number}", "dead", None)
        seen = []
        for marker, count in ((None, 2), ("h1", 1), ("h2", 0)):
            query = {} if marker is None else {"marker": marker}
            answer = self.list(limit="2", with_count="true", **query)
            seen += [item["host"] for item in answer["hosts"]]
            self.assertEqual((3, count), (answer["count"], len(answer["hosts"])))
            self.assertEqual(count == 2, "hosts_links" in answer)
        self.assertEqual(["h0", "h1", "h2"], seen)
        self.assertEqual(
            ["h1"], [item["host"] for item in self.list(limit="1", offset="1")["hosts"]]
        )

    def test_connection_is_shown_as_the_attachment_that_it_serves(self):
        values = {"kind": "connection", "parent_id": "11111111-2222-4333-8444-555555555555"}
        db_rows.change_attachment(self.row["id"], **values)
        host = handlers.show(HOST)["host"]
        self.assertEqual([values["parent_id"]], host["attachment_ids"])

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
        with self.assertRaisesRegex(exception.NotFound, "node-3"):
            handlers.drain(self.ctx, "node-3", {"drain": {}})

    def drain(self, **requested):
        with mock.patch.object(drains, "advance", return_value=False):
            host = handlers.drain(self.ctx, HOST, {"drain": requested})["host"]
        return host["drain"], host["drain"]["reason"]

    def test_host_is_drained_and_listed_until_it_is_resumed(self):
        self.assertIsNone(handlers.show(HOST)["host"]["drain"])
        drain, reason = self.drain(reason="repair")
        self.assertEqual(("repair", {"attached": 1}), (reason, drain["counts"]))
        (host,) = self.list()["hosts"]
        self.assertEqual((False, drain), (host["fenced"], host["drain"]))
        self.assertIsNone(handlers.resume(self.ctx, HOST)["host"]["drain"])
        self.assertEqual({"hosts": []}, self.list())

    def test_what_is_to_be_detached_is_stored(self):
        drain, _reason = self.drain(detach=[self.row["id"].upper()])
        self.assertEqual({"waiting": 1}, drain["counts"])
        self.assertEqual({"waiting": 1}, self.drain()[0]["counts"])

    def test_attachment_of_another_host_is_refused(self):
        wrong = "11111111-2222-4333-8444-555555555555"
        with self.assertRaisesRegex(exception.InvalidInput, f"drain.detach.1|{wrong}"):
            handlers.drain(self.ctx, HOST, {"drain": {"detach": [self.row["id"], wrong]}})
        self.assertEqual({"hosts": []}, self.list())

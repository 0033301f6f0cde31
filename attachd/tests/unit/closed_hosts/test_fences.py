# SPDX-License-Identifier: Apache-2.0
"""Tests of beginning fences and of their results, without managers."""

from unittest import mock

from attachd import exception
from attachd.closed_hosts import fences
from attachd.db import host_fences, messages
from attachd.db.attachments import async_requests, attachment_queries, attachment_store, events
from attachd.db.cluster import services
from attachd.db.engine import paging
from attachd.rpc import manager_api
from attachd.tests.fixtures import api_context, db_rows

PROOF = {"result": "proved", "observed_at": ["now"], "observed": ["Nothing."]}


def report(fencing):
    """Report the fencing of the backend."""
    services.report(
        binary="attachd-manager",
        host="here@fake",
        availability_zone="nova",
        up=True,
        error=None,
        report={"capabilities": {"fencing": fencing}},
        supported=services.Versions("1.0", "1.0"),
    )


class FencesTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context("admin")
        volume = db_rows.add_volume(host="here@fake#pool")["id"]
        self.own_id = db_rows.add_attachment(
            volume, "attached", connector={"host": "h"}, host="h"
        )["id"]
        self.row = self.read()

    def read(self):
        return attachment_queries.list_by_ids([self.own_id]).get(self.own_id)

    def begin(self, request=async_requests.fence, **cast):
        with mock.patch.object(manager_api, "process_pending", **cast) as self.cast:
            return fences.begin(self.ctx, [self.row], request)

    def result(self):
        (result,) = fences.list_results([self.row])
        return result["result"], result["reason"], result["proof"]

    def messages(self):
        return [row["details"] for row in messages.page({}, paging.Page(limit=9))]

    def test_request_is_stored_before_its_manager_is_asked(self):
        seen = []
        self.begin(side_effect=lambda _ctx, item: seen.append((item.id, self.read()["state"])))
        self.assertEqual([(self.own_id, "disconnecting")], seen)
        self.assertTrue(self.read()["fenced"])
        self.assertEqual(("pending", None, None), self.result())

    def test_repeated_request_asks_again_and_leaves_one_message_to_the_user(self):
        self.begin()
        attachment_store.record_error(self.read(), "The backend is down.")
        self.assertEqual(("pending", "The backend is down.", None), self.result())
        self.row = self.read()
        self.begin()
        self.cast.assert_called_once()
        self.assertEqual(("pending", None, None), self.result())
        self.assertEqual(
            [{"user_id": self.ctx.user_id, "attachment_id": self.own_id}], self.messages()
        )

    def test_lost_message_leaves_the_request(self):
        self.assertEqual({}, self.begin(side_effect=exception.Unavailable(reason="no broker")))
        self.assertEqual(("pending", None, None), self.result())

    def test_failure_is_shown_with_its_reason(self):
        db_rows.change_attachment(
            self.own_id, state="disconnect_failed", fenced=True, error="lost."
        )
        self.assertEqual(("failed", "lost.", None), self.result())

    def test_removed_attachment_has_its_proof_or_was_detached(self):
        db_rows.remove_attachment(self.own_id)
        self.assertEqual({}, self.begin())
        self.cast.assert_not_called()
        result, reason, proof = self.result()
        self.assertEqual(("asserted", None), (result, proof))
        self.assertIn("detached meanwhile", reason)
        events.record_fenced(self.row, PROOF)
        self.assertEqual(("proved", None, PROOF), self.result())

    def test_connection_is_known_by_the_attachment_that_it_serves(self):
        served = db_rows.add_attachment(self.row["volume_id"], "attached", kind="legacy")["id"]
        db_rows.change_attachment(self.own_id, kind="connection", parent_id=served)
        self.row = self.read()
        self.begin()
        (result,) = fences.list_results([self.row])
        self.assertEqual(served, result["attachment_id"])
        self.assertEqual(self.own_id, self.cast.call_args.args[1].id)

    def test_legacy_attachment_with_a_connection_is_refused(self):
        served = db_rows.add_attachment(self.row["volume_id"], "attached", kind="legacy")["id"]
        db_rows.change_attachment(self.own_id, kind="connection", parent_id=served, host="other")
        self.row = attachment_queries.list_by_ids([served])[served]
        (refused,) = self.begin().values()
        self.assertEqual("failed", refused["result"])
        self.assertIn("host other is connected for it: fence that host", refused["reason"])
        self.cast.assert_not_called()

    def test_backend_that_cannot_fence_is_not_asked(self):
        report("none")
        (refused,) = self.begin().values()
        self.assertEqual("failed", refused["result"])
        self.assertIn("Turn the host off", refused["reason"])
        self.assertEqual("attached", self.read()["state"])
        self.cast.assert_not_called()
        self.assertEqual({"here@fake": "none"}, fences.get_fencing())
        self.assertEqual([refused], fences.list_left([self.row]))

    def test_attachment_of_a_host_whose_fence_was_lifted_stays(self):
        host_fences.fence("h", "dead", None)
        host_fences.lift("h")
        (refused,) = self.begin(async_requests.fence_on_host).values()
        self.assertIn("was lifted", refused["reason"])
        self.assertEqual("attached", self.read()["state"])

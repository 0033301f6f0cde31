# SPDX-License-Identifier: Apache-2.0
"""Sets of attachments at the API; functional/test_attachment_sets.py has managers and agents."""

import contextlib
from unittest import mock

import webob

from attachd import exception
from attachd.api import idempotency
from attachd.api.attachments import set_progress, sets
from attachd.api.attachments.set_progress import Member
from attachd.api.idempotency import IdempotencyClaim
from attachd.db import models
from attachd.db.attachments import attachment_sets
from attachd.rpc import agent_api, bulkheads, manager_api
from attachd.tests.fixtures import api_context, db_rows, fake_agent

HOST = "node-1"


class SetsCase(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(HOST)
        self.ctx = api_context.make_context("admin")
        self.volumes = [db_rows.add_volume()["id"] for _ in range(2)]
        for module, name in ((agent_api, "reconcile"), (manager_api, "process_pending")):
            self.enterContext(mock.patch.object(module, name))

    def attach(self, state="attached", *, atomic=True, claim=None, **values):
        """Attach the volumes; managers and agents bring all attachments into a state."""

        def work(*_arguments):
            connecting = [
                row for row in db_rows.list_attachments() if row["state"] == "connecting"
            ]
            for row in connecting:
                db_rows.change_attachment(row["id"], state=state, **values)

        manager_api.process_pending.side_effect = work
        volumes = [{"volume_uuid": item} for item in self.volumes]
        body = {"host": HOST, "volumes": volumes, "atomic": atomic}
        return sets.attach_set(self.ctx, body, claim)["results"]

    def left(self):
        return {row["state"] for row in db_rows.list_attachments()}


class SetsTest(SetsCase):
    def test_results_are_in_the_order_of_the_request(self):
        for item, volume in zip(self.attach(device="/dev/sdb"), self.volumes, strict=True):
            self.assertEqual((volume, "attached"), (item["volume_id"], item["status"]))
            self.assertEqual(("/dev/sdb", None), (item["device"], item["error"]))

    def test_failed_set_is_undone_and_the_error_names_the_volume(self):
        waits = [None, None]  # the agents do not remove the devices in this test
        real = set_progress.wait

        def wait(*arguments):
            waits.pop()
            if waits:
                real(*arguments)

        with (
            mock.patch.object(set_progress, "wait", wait),
            self.assertRaisesRegex(exception.ConnectFailed, f"full.*{self.volumes[0]}"),
        ):
            self.attach("connect_failed", error="full")
        self.assertEqual({"disconnecting"}, self.left())
        table = models.attachment_sets
        row = attachment_sets.session.fetch_one(table.select())
        self.assertTrue(row["undoing"])

    def test_repeated_request_continues_with_its_set(self):
        claim = IdempotencyClaim("d", models.new_id())
        with mock.patch.object(claim, "note"):
            first = self.attach(claim=claim)
        self.assertIsNone(attachment_sets.find(claim.resource_id))
        claim.made = claim.repeated = True
        self.assertEqual(first, self.attach(claim=claim))
        db_rows.remove_attachment(first[0]["attachment_id"])
        with self.assertRaises(idempotency.KeyResourceGone):
            self.attach(claim=claim)

    def test_set_that_is_being_undone_is_not_continued(self):
        claim = IdempotencyClaim("d", models.new_id(), repeated=True, made=True)
        attachment_sets.reserve(claim.resource_id, [], None)
        attachment_sets.begin_undo(claim.resource_id)
        with self.assertRaisesRegex(exception.Conflict, "are being removed"):
            self.attach(claim=claim)

    def test_each_is_attached_for_itself(self):
        db_rows.add_attachment(self.volumes[0], "attached")
        refused, attached = self.attach(atomic=False)
        self.assertEqual("attachd.volume_not_available", refused["error"]["reason_code"])
        self.assertEqual(("attached", None), (attached["status"], attached["error"]))

    def test_id_that_is_there_twice_is_refused(self):
        self.volumes *= 2
        with self.assertRaisesRegex(exception.InvalidInput, "there twice"):
            self.attach()

    def test_detach_removes_reservations_and_shows_unknown_ids(self):
        rows = [db_rows.add_attachment(volume) for volume in self.volumes]
        unknown = models.new_id()
        ids = [*(row["id"] for row in rows), unknown]
        results = sets.detach_set(self.ctx, {"attachments": ids}, mock.Mock())["results"]
        self.assertEqual(ids, [item["attachment_id"] for item in results])
        self.assertEqual([None, None], [item["error"] for item in results[:2]])
        self.assertEqual("attachd.attachment_not_found", results[2]["error"]["reason_code"])
        self.assertEqual(set(), self.left())

    def test_detach_is_not_refused_because_of_slow_hosts_of_another_project(self):
        entered = []

        @contextlib.contextmanager
        def slot(server, volume_id, project_id):
            entered.append((server, volume_id, project_id))
            yield 0.0

        self.enterContext(mock.patch.object(bulkheads, "slot", slot))
        for project in ("p", "q"):
            ctx = api_context.make_context("admin", project=project)
            sets.detach_set(ctx, {"attachments": [models.new_id()]}, mock.Mock())
        self.assertEqual(2, len({server for server, _, _ in entered}))

    def test_row_of_a_set_is_renewed_while_the_request_waits(self):
        renewal = sets._Renewal("s")
        with mock.patch.object(attachment_sets, "renew", return_value=False) as renew:
            self.assertTrue(renewal.go_on(False))
            self.assertFalse(renewal.go_on(True))
            renew.assert_not_called()
            renewal._renewed_at -= sets._RENEWAL + 1
            self.assertFalse(renewal.go_on(False))

    def test_failure_without_a_failed_member_says_what_to_do(self):
        for failed in (None, Member("v", "a")):
            self.assertRegex(f"{sets._failure('s', failed)}", "Repeat the request")


class SetKeysTest(SetsCase):
    """Sets whose volumes are attached each for itself, by requests with an idempotency key."""

    def setUp(self):
        super().setUp()
        self.digest = "d" * 64

    def use_other_key(self):
        """Use another key from now on, and other volumes."""
        self.digest = models.new_id()
        db_rows.remove_all()
        self.volumes = [db_rows.add_volume()["id"] for _ in range(2)]

    def request(self, state="attached", **values):
        """Send the request once; return its results, and whether they are repeated ones."""
        response = webob.Response()
        use = idempotency.KeyUse(self.digest, "f" * 64)
        spec = idempotency.IdempotencySpec(sets._keep_answer, sets._replay_answer)

        def run(claim):
            return {"results": self.attach(state, atomic=False, claim=claim, **values)}

        answer = idempotency.run_once(self.ctx, response, use, spec, run)
        return answer["results"], idempotency.REPLAYED in response.headers

    def refuse(self, error):
        """Let the second volume fail before it is reserved."""
        real = sets._plan

        def plan(ctx, asked, connector):
            if asked.member.volume_id == self.volumes[1]:
                raise error
            return real(ctx, asked, connector)

        return mock.patch.object(sets, "_plan", plan)

    def assert_attached_and_repeated(self, results, is_repeated):
        self.assertFalse(is_repeated)
        self.assertEqual(["attached"] * 2, [item["status"] for item in results], results)
        self.assertEqual([None] * 2, [item["error"] for item in results])
        self.assertEqual((results, True), self.request())
        self.assertEqual(2, len(db_rows.list_attachments()))

    def test_answer_with_a_temporary_error_is_continued_by_the_next_request(self):
        for error in (
            exception.DatabaseUnavailable(reason="away"),
            exception.AgentTimeout(host=HOST, attachment_id="a"),
            exception.AgentError(reason="no session"),
            exception.TooManyCalls("Too many."),
        ):
            with self.subTest(code=error.code):
                with self.refuse(error):
                    (first, failed), _ = self.request()
                self.assertEqual((error.code, None), (failed["error"]["code"], failed["status"]))
                results, is_repeated = self.request()
                self.assertEqual(first, results[0])
                self.assert_attached_and_repeated(results, is_repeated)
            self.use_other_key()

    def test_answer_with_refusals_alone_is_repeated(self):
        with self.refuse(exception.Conflict(reason="held")):
            first, _ = self.request()
        self.assertEqual((first, True), self.request())

    def test_attached_volume_is_not_checked_again(self):
        with self.refuse(exception.Unavailable(reason="away")):
            (first, _), _ = self.request()
        with (
            self.refuse(exception.Conflict(reason="held")),
            mock.patch.object(
                sets.lifecycle, "check_requested_mode", side_effect=exception.Conflict(reason="ro")
            ),
        ):
            (second, refused), _ = self.request()
        self.assertEqual((first, 409), (second, refused["error"]["code"]))

    def test_attached_volume_keeps_its_result_while_the_agent_is_away(self):
        with self.refuse(exception.Unavailable(reason="away")):
            (first, _), _ = self.request()
        db_rows.change_agent(HOST, seen_at=None)
        results, _ = self.request()
        self.assertEqual(first, results[0])
        self.assertEqual("attachd.agent_unavailable", results[1]["error"]["reason_code"])
        self.assertEqual((results, True), self.request())

    def test_request_without_any_attachment_is_refused_while_the_agent_is_away(self):
        with mock.patch.object(sets, "_plan", side_effect=exception.Unavailable(reason="away")):
            self.request()
        db_rows.change_agent(HOST, seen_at=None)
        with self.assertRaises(exception.AgentUnavailable):
            self.request()

    def test_volume_that_was_removed_after_an_error_of_the_agent_is_attached_again(self):
        def remove(*_arguments):
            for row in db_rows.list_attachments():
                if row["state"] == "withdrawing":
                    db_rows.remove_attachment(row["id"])

        agent_api.reconcile.side_effect = remove
        results, _ = self.request("connected", error="no session")
        self.assertEqual([(500, None)] * 2, [(x["error"]["code"], x["status"]) for x in results])
        self.assertEqual(set(), self.left())
        self.assert_attached_and_repeated(*self.request())

    def test_volume_of_unknown_outcome_that_is_attached_by_now_gets_that_result(self):
        with mock.patch.object(set_progress.polling, "wait_while", return_value=False):
            results, _ = self.request("connecting")
        self.assertEqual([504] * 2, [item["error"]["code"] for item in results])
        for row in db_rows.list_attachments():
            db_rows.change_attachment(row["id"], state="attached")
        self.assert_attached_and_repeated(*self.request())

    def test_unknown_connection_is_repeated_with_its_own_connector(self):
        with mock.patch.object(set_progress.polling, "wait_while", return_value=False):
            self.request("connecting")
        (own, _) = (row["connector"] for row in db_rows.list_attachments())
        for row in db_rows.list_attachments():
            db_rows.change_attachment(row["id"], state="connect_unknown")
        db_rows.change_agent(HOST, connector={**own, "initiator": "iqn.2026-01.org.example:new"})
        self.assert_attached_and_repeated(*self.request())
        self.assertEqual([own] * 2, [row["connector"] for row in db_rows.list_attachments()])

    def test_volume_that_was_detached_since_is_not_attached_again(self):
        with (
            self.refuse(exception.Unavailable(reason="away")),
            mock.patch.object(set_progress.polling, "wait_while", return_value=False),
        ):
            (first, _), _ = self.request("connected")
        fake_agent.act_as_agent(self.ctx, HOST, first["attachment_id"])
        db_rows.remove_attachment(first["attachment_id"])
        (gone, attached), _ = self.request()
        self.assertEqual("attachd.key_resource_gone", gone["error"]["reason_code"])
        self.assertEqual((None, "attached"), (gone["status"], attached["status"]))
        self.assertEqual(([gone, attached], True), self.request())

# SPDX-License-Identifier: Apache-2.0
"""Sets of attachments at the API; functional/test_attachment_sets.py has managers and agents."""

import contextlib
from unittest import mock

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


class SetsTest(api_context.ApiContextCase):
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

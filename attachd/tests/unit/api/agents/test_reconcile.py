# SPDX-License-Identifier: Apache-2.0
"""The wait for the result of an agent, which its row shows."""

from concurrent import futures
import threading
from unittest import mock

from attachd import exception
from attachd.api.agents import reconcile
from attachd.db.agents import agent_transitions
from attachd.objects import Attachment
from attachd.rpc import agent_api, bulkheads
from attachd.states import AttachmentState
from attachd.tests.fixtures import api_context, db_rows, fake_agent
from attachd.tests.fixtures.conf_fixture import override

HOST = "node-1"
PENDING = {AttachmentState.CONNECTED}


class ReconcileTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.cast = self.enterContext(mock.patch.object(agent_api, "reconcile"))
        fake_agent.report_agent(HOST)
        volume = db_rows.add_volume()["id"]
        self.attachment_id = db_rows.add_attachment(volume, "connected", agent=HOST, generation=1)[
            "id"
        ]

    def run_reconcile(self):
        reconcile.reconcile(self.ctx, Attachment.get(self.ctx, self.attachment_id), PENDING)

    def test_reconcile_returns_after_result(self):
        timer = threading.Timer(
            0.2, agent_transitions.complete, (self.attachment_id, HOST, 1, "/dev/sdb")
        )
        timer.start()
        self.addCleanup(timer.join)
        self.run_reconcile()
        self.cast.assert_called_once_with(self.ctx, HOST, self.attachment_id)
        self.assertEqual("attached", db_rows.get_attachment(self.attachment_id)["state"])

    def test_reconcile_of_deleted_attachment_returns(self):
        self.cast.side_effect = lambda *_: db_rows.remove_attachment(self.attachment_id)
        self.run_reconcile()

    def test_reconcile_raises_error_of_agent(self):
        self.cast.side_effect = lambda *_: agent_transitions.record_failure(
            self.attachment_id, HOST, 1, "no session"
        )
        for _ in range(2):
            with self.assertRaisesRegex(exception.AgentError, "no session") as raised:
                self.run_reconcile()
            self.assertEqual(500, raised.exception.code)

    def test_reconcile_ignores_error_from_before(self):
        agent_transitions.record_failure(self.attachment_id, HOST, 1, "no session")
        override(self, "work_timeout", 1, "agent")
        with self.assertRaisesRegex(exception.AgentTimeout, self.attachment_id):
            self.run_reconcile()
        self.assertIsNone(db_rows.get_attachment(self.attachment_id)["error"])

    def test_reconcile_ends_when_the_agent_counts_as_down(self):
        self.cast.side_effect = lambda *_: fake_agent.expire_heartbeat(HOST)
        with self.assertRaisesRegex(exception.AgentUnavailable, "has not reported since"):
            self.run_reconcile()

    def test_reconcile_counts_as_call_in_progress(self):
        self.cast.side_effect = lambda *_: waiting.append(bulkheads.calls_in_progress())
        waiting = []
        override(self, "work_timeout", 1, "agent")
        with self.assertRaises(exception.AgentTimeout):
            self.run_reconcile()
        self.assertEqual(([1], 0), (waiting, bulkheads.calls_in_progress()))

    def test_reconcile_over_limit_sends_nothing(self):
        self.enterContext(mock.patch.object(bulkheads, "max_wait", lambda: 0.0))
        override(self, "max_calls_per_backend", 1, "rpc")
        attachment = Attachment.get(self.ctx, self.attachment_id)
        pool = self.enterContext(futures.ThreadPoolExecutor())  # Each thread has turns of its own.
        with (
            bulkheads.slot(f"the agent of host {HOST}", "other", "other"),
            self.assertRaisesRegex(exception.Unavailable, f"The agent of host {HOST} has 1 calls"),
        ):
            pool.submit(self.run_reconcile).result()
        self.cast.assert_not_called()
        override(self, "max_calls_per_volume", 1, "rpc")
        with (
            bulkheads.slot("h@b", attachment.volume_id, "other"),
            self.assertRaises(exception.TooManyCalls),
        ):
            pool.submit(self.run_reconcile).result()
        self.cast.assert_not_called()

    def test_reconcile_without_delivery_does_not_wait(self):
        self.cast.side_effect = exception.AgentUnavailable(host=HOST, since="yet")
        with self.assertRaises(exception.AgentUnavailable):
            self.run_reconcile()


class DefineSecretTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.cast = self.enterContext(mock.patch.object(agent_api, "reconcile"))
        self.attachment_id = db_rows.add_attachment(
            db_rows.add_volume()["id"], "connected", secret_agent=HOST, generation=2
        )["id"]

    def run_define(self):
        reconcile.define_secret(self.ctx, Attachment.get(self.ctx, self.attachment_id))

    def record(self, function, *rest):
        self.cast.side_effect = lambda *_: function(self.attachment_id, HOST, 2, *rest)

    def test_define_secret_returns_when_agent_has_defined_it(self):
        self.record(agent_transitions.record_secret)
        self.run_define()
        self.run_define()
        self.cast.assert_called_once_with(self.ctx, HOST, self.attachment_id)

    def test_define_secret_without_agent_sends_nothing(self):
        db_rows.change_attachment(self.attachment_id, secret_agent=None)
        self.run_define()
        self.cast.assert_not_called()

    def test_define_secret_of_former_generation_is_waited_for(self):
        db_rows.change_attachment(self.attachment_id, secret_generation=1)
        self.enterContext(mock.patch.object(reconcile, "SECRET_TIMEOUT", 0.1))
        with self.assertRaisesRegex(exception.Conflict, "did not answer in time"):
            self.run_define()

    def test_define_secret_raises_error_of_agent_as_409(self):
        self.record(agent_transitions.record_failure, "'virsh' failed")
        with self.assertRaisesRegex(
            exception.Conflict, f"{HOST}.*{self.attachment_id}.*'virsh' failed"
        ):
            self.run_define()

    def test_define_secret_of_attachment_that_is_disconnected_is_refused(self):
        self.cast.side_effect = lambda *_: db_rows.remove_attachment(self.attachment_id)
        with self.assertRaisesRegex(exception.Conflict, "disconnected meanwhile"):
            self.run_define()

# SPDX-License-Identifier: Apache-2.0
"""Tests of the look at fenced hosts, without backends."""

from unittest import mock

from attachd import exception
from attachd.db import host_fences, models
from attachd.db.attachments import async_requests, events
from attachd.manager import fenced_hosts
from attachd.manager.fenced_hosts import FencedHosts
from attachd.rpc import manager_api
from attachd.tests.fixtures import captured_notifications, databases, db_rows

HOST = "compute-1"
PROOF = {"result": "proved", "observed_at": [], "observed": []}


class Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.sent = self.enterContext(mock.patch.object(manager_api, "process_pending"))
        self.thread = FencedHosts()

    def attach(self, state="attached", **columns):
        volume = db_rows.add_volume()["id"]
        values = {"host": HOST, "connector": {"host": HOST}, **columns}
        return db_rows.add_attachment(volume, state, **values)["id"]

    def fence(self):
        return host_fences.fence(HOST, "dead", "u")[0]

    def run_times(self, times=2):
        for _ in range(times):
            self.thread.run_once()

    def fenced(self):
        return [row["id"] for row in db_rows.list_attachments() if row["fenced"]]

    def without_fencing(self):
        abilities = {"here@fake": manager_api.Fencing.NONE.value}
        name = "attachd.db.cluster.services.list_capability"
        return mock.patch(name, return_value=abilities)


class BeginTest(Case):
    def test_fence_that_a_dead_process_has_not_started_is_started_by_second_run(self):
        attachments = [self.attach(), self.attach("connecting"), self.attach(agent=HOST, host="x")]
        other = self.attach(host="compute-2", connector={"host": "compute-2"})
        self.fence()
        self.run_times(1)
        self.assertEqual([], self.fenced(), "the process that fences the host has time for it")
        self.run_times(1)
        self.assertEqual(sorted(attachments), sorted(self.fenced()))
        self.assertEqual("attached", db_rows.get_attachment(other)["state"])
        self.run_times()
        self.assertEqual(
            sorted(attachments), sorted(call.args[1].id for call in self.sent.call_args_list)
        )

    def test_several_managers_begin_a_fence_once(self):
        attachment = self.attach()
        self.fence()
        other = FencedHosts()
        for _ in range(2):
            self.thread.run_once()
            other.run_once()
        self.assertEqual(1, self.sent.call_count)
        self.assertEqual(1, db_rows.get_attachment(attachment)["generation"])

    def test_lifted_fence_is_not_continued(self):
        attachment = self.attach()
        self.fence()
        self.run_times(1)
        host_fences.lift(HOST)
        self.run_times()
        self.assertEqual("attached", db_rows.get_attachment(attachment)["state"])

    def test_fence_that_is_lifted_during_the_look_is_not_continued(self):
        attachment = self.attach()
        self.fence()
        rows = host_fences.list_unfenced([HOST])
        host_fences.lift(HOST)
        fenced_hosts.begin_fences(rows)
        self.assertEqual("attached", db_rows.get_attachment(attachment)["state"])
        self.sent.assert_not_called()

    def test_attachment_that_is_detached_by_force_meanwhile_needs_no_proof(self):
        attachment = self.attach()
        self.fence()
        rows = host_fences.list_unfenced([HOST])
        db_rows.change_attachment(attachment, state="disconnect_failed")
        fenced_hosts.begin_fences(rows)
        self.run_times()
        self.assertEqual([], self.fenced())
        self.sent.assert_not_called()

    def test_backend_that_cannot_end_access_keeps_attachment(self):
        attachment = self.attach()
        self.fence()
        with self.without_fencing():
            self.run_times()
        self.assertEqual("attached", db_rows.get_attachment(attachment)["state"])

    def test_message_that_cannot_be_sent_is_left_to_recovery(self):
        first, second = self.attach(), self.attach()
        self.fence()
        self.sent.side_effect = exception.Unavailable(reason="no broker")
        self.run_times()
        self.assertEqual(sorted([first, second]), sorted(self.fenced()))

    def test_attachment_that_is_deleted_meanwhile_is_passed_over(self):
        attachment = self.attach()
        self.fence()
        rows = host_fences.list_unfenced([HOST])
        db_rows.remove_attachment(attachment)
        fenced_hosts.begin_fences(rows)
        self.sent.assert_not_called()


class NotifyTest(Case):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)

    def pass_minute(self):
        later = models.now() + host_fences.NOTIFY_TIMEOUT
        self.enterContext(mock.patch.object(models, "now", return_value=later))

    def steps(self):
        """Return the notifications that were sent by now, each with results and reasons."""
        sent = self.notifications.messages()
        captured_notifications.sender.reset_after_fork()
        return [
            (
                message["event_type"],
                [
                    (item["attachment_id"], item["result"], item["reason"])
                    for item in message["payload"].get("attachments", ())
                ],
            )
            for message in sent
        ]

    def start(self):
        """Fence the host as a process that has notified of it, and died."""
        row = self.fence()
        host_fences.record_notified(row, host_fences.Notified.START)
        return row

    def prove(self, attachment):
        async_requests.fence(attachment, db_rows.get_attachment(attachment)["volume_id"])
        events.record_fenced(db_rows.get_attachment(attachment), PROOF)
        db_rows.remove_attachment(attachment)

    def test_start_that_its_process_has_not_sent_is_sent_by_one_manager(self):
        self.attach()
        self.fence()
        self.run_times()
        self.assertEqual([], self.steps(), "it is claimed")
        self.pass_minute()
        self.run_times()
        FencedHosts().run_once()
        self.assertEqual([("host.fence.start", [])], self.steps())

    def test_end_follows_when_nothing_is_pending(self):
        attachment = self.attach()
        self.start()
        self.run_times()
        self.assertEqual([], self.steps())
        self.prove(attachment)
        FencedHosts().run_once()
        end = ("host.fence.end", [(attachment, "proved", None)])
        self.assertEqual([end], self.steps())
        self.run_times()
        self.assertEqual([end], self.steps())

    def test_end_with_failed_attachments_is_followed_by_another_one(self):
        failed = self.attach("disconnect_failed", fenced=True, error="It hangs.")
        proved = self.attach()
        self.start()
        self.prove(proved)
        self.run_times()
        first = ("host.fence.end", [(proved, "proved", None), (failed, "failed", "It hangs.")])
        self.assertEqual([first], self.steps())
        self.run_times()
        self.assertEqual([first], self.steps())
        self.prove(failed)
        self.run_times()
        second = ("host.fence.end", [(proved, "proved", None), (failed, "proved", None)])
        self.assertEqual([first, second], self.steps())

    def test_end_names_attachments_of_backends_without_fencing_as_failed(self):
        attachment = self.attach()
        self.start()
        with self.without_fencing():
            self.run_times()
        ((event, ((failed, result, reason),)),) = self.steps()
        self.assertEqual(("host.fence.end", attachment, "failed"), (event, failed, result))
        self.assertIn("Turn the host off", reason)

    def test_end_of_lifted_fence_has_what_was_fenced(self):
        proved, pending = self.attach(), self.attach()
        self.start()
        self.prove(proved)
        async_requests.fence(pending, db_rows.get_attachment(pending)["volume_id"])
        host_fences.lift(HOST)
        new = self.attach()
        self.run_times()
        self.assertEqual([], self.steps())
        self.prove(pending)
        self.run_times()
        ended = [(proved, "proved", None), (pending, "proved", None)]
        self.assertEqual([("host.fence.end", ended)], self.steps())
        self.assertEqual("attached", db_rows.get_attachment(new)["state"])

    def test_nothing_is_claimed_without_notifications(self):
        self.start()
        with mock.patch("attachd.notifications.enabled", return_value=False):
            self.run_times()
        self.assertEqual("start", host_fences.find(HOST)["notified"])
        self.assertIsNone(host_fences.find(HOST)["notify_after"])

    def test_failure_is_logged_and_the_look_repeated(self):
        error = exception.Unavailable(reason="no database")
        with self.assertLogs("attachd.manager.fenced_hosts", "ERROR") as logged:
            self.thread._log_failure(error)
        self.assertIn("trying again: ", logged.output[0])

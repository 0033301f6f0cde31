# SPDX-License-Identifier: Apache-2.0
"""Tests of sending events to Compute, with a fake Nova over HTTP."""

import datetime
from unittest import mock

from attachd import exception
from attachd.db import compute_events as store
from attachd.db import messages, models
from attachd.db.engine import paging, session
from attachd.manager import compute_events
from attachd.tests.fixtures import conf_fixture, databases, db_rows, fake_nova

SERVERS = [f"{number}1111111-2222-3333-4444-555555555555" for number in range(3)]
SERVER = SERVERS[0]
LONG_AGO = datetime.timedelta(days=1)


class SendCase(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.nova = fake_nova.FakeNova(self)
        for name, value in (("endpoint_override", self.nova.url), ("auth_type", "none")):
            conf_fixture.override(self, name, value, "nova")
        self.volume = self.add()

    def add(self, *servers):
        volume = db_rows.add_volume(multiattach=True)["id"]
        for server in servers or [SERVER]:
            db_rows.add_attachment(volume, "attached", instance_uuid=server)
            self.nova.add_server(server)
        self.record(volume)
        return volume

    def record(self, volume):
        with session.writer() as connection:
            store.record_extended(connection, volume)

    def rows(self):
        table = models.compute_events
        with session.reader() as connection:
            statement = table.select().order_by(table.c.server_id)
            return [dict(row) for row in connection.execute(statement).mappings()]

    def expire_pauses(self):
        session.write(
            models.compute_events.update().values(next_attempt_at=models.now() - LONG_AGO)
        )

    def messages(self):
        page = paging.Page(limit=10)
        return list(messages.page({}, page))

    def pause(self):
        (row,) = self.rows()
        return (row["next_attempt_at"] - models.now()).total_seconds()

    def sent(self):
        return [(event["server_uuid"], event["tag"]) for event in self.nova.events]

    def posts(self):
        return [path for path, _headers in self.nova.requests if path.endswith("-events")]


class SendTest(SendCase):
    def test_accepted_event_is_removed(self):
        compute_events.send_due()
        self.assertEqual([(SERVER, self.volume)], self.sent())
        self.assertEqual(([], []), (self.rows(), self.messages()))
        compute_events.send_due()
        self.assertEqual(1, len(self.nova.events))

    def test_each_server_of_a_volume_is_notified(self):
        volume = self.add(*SERVERS)
        compute_events.send_due(volume)
        self.assertEqual([(server, volume) for server in SERVERS], sorted(self.sent()))
        self.assertEqual([self.volume], [row["volume_id"] for row in self.rows()])

    def test_more_events_than_a_page_are_sent_by_several_runs(self):
        self.enterContext(mock.patch.object(compute_events, "PAGE", 2))
        self.add(*SERVERS)
        for _ in range(2):
            compute_events.send_due()
        self.assertEqual(4, len(self.nova.events))

    def test_event_of_detached_volume_is_not_sent(self):
        (row,) = db_rows.list_attachments(self.volume)
        db_rows.remove_attachment(row["id"])
        compute_events.send_due()
        self.assertEqual(([], [], []), (self.posts(), self.rows(), self.messages()))

    def test_event_that_another_process_claims_is_not_sent(self):
        listed = store.list_due(10)
        store.claim(listed[0], models.now())
        with mock.patch.object(store, "list_due", return_value=listed):
            compute_events.send_due()
        self.assertEqual([], self.posts())

    def test_event_of_killed_process_is_sent_when_its_claim_ends(self):
        with (
            mock.patch("attachd.compute.EventSender.send", side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            compute_events.send_due()
        compute_events.send_due()
        self.assertEqual([], self.nova.events)
        self.assertGreater(self.pause(), 2 * 13, "a slow attempt would be sent in parallel")
        self.expire_pauses()
        compute_events.send_due()
        self.assertEqual([(SERVER, self.volume)], self.sent())

    def test_event_that_is_replaced_while_it_is_sent_stays(self):
        self.nova.before_response = lambda path: (
            path.endswith("-events") and self.record(self.volume)
        )
        compute_events.send_due()
        self.assertEqual([0], [row["attempts"] for row in self.rows()])
        self.nova.before_response = lambda _path: None
        compute_events.send_due()
        self.assertEqual(2, len(self.nova.events))


class RefusalTest(SendCase):
    def check_final(self, says):
        with self.assertLogs(compute_events.LOG.logger, "WARNING") as logged:
            compute_events.send_due()
        self.assertEqual([], self.rows())
        (message,) = self.messages()
        self.assertEqual(
            ("VOLUME_VOLUME_007_011", self.volume, db_rows.PROJECT),
            (message["event_id"], message["resource_uuid"], message["project_id"]),
        )
        text = messages.DETAILS["011"] % message["details"]
        self.assertRegex(text, f"to server {SERVER}: {says}")
        self.assertRegex(logged.output[0], f"volume {self.volume} for server {SERVER}.*{says}")

    def test_unknown_server_is_final_and_recorded_for_the_user(self):
        self.nova.servers.clear()
        self.check_final("it does not know the server")

    def test_server_without_host_is_final_and_recorded_for_the_user(self):
        self.nova.add_server(SERVER, host=None)
        self.check_final("it has the server on no host")

    def test_refusal_for_one_server_does_not_concern_the_others(self):
        volume = self.add(*SERVERS)
        self.nova.servers.pop(SERVERS[1])
        compute_events.send_due(volume)
        self.assertEqual({SERVERS[0], SERVERS[2]}, {server for server, _tag in self.sent()})
        (message,) = self.messages()
        self.assertEqual(SERVERS[1], message["details"]["server_id"])


class RetryTest(SendCase):
    def test_failure_is_repeated_with_growing_pauses(self):
        self.nova.respond_to("-events", 503)
        for expected in (5, 10, 20, 40, 80, 160, 300, 300):
            compute_events.send_due()
            self.assertLess(abs(self.pause() - expected), 4)
            compute_events.send_due()  # Nothing is due.
            self.expire_pauses()
        self.assertEqual(8, len(self.posts()))
        (row,) = self.rows()
        self.assertEqual((8, []), (row["attempts"], self.messages()))
        self.assertIn("status 503", row["error"])
        self.nova._instead_of.clear()
        compute_events.send_due()
        self.assertEqual(([(SERVER, self.volume)], []), (self.sent(), self.rows()))

    def test_last_failure_ends_it_with_a_message_to_the_user(self):
        self.nova.respond_to("-events", 500)
        session.write(models.compute_events.update().values(attempts=29))
        with self.assertLogs(compute_events.LOG.logger, "ERROR") as logged:
            compute_events.send_due()
        self.assertEqual([], self.rows())
        (message,) = self.messages()
        self.assertIn("did not answer", message["details"]["reason"])
        self.assertRegex(logged.output[0], "given up after 30 attempts: .*status 500.*stop and s")

    def test_failed_server_does_not_delay_the_others(self):
        volume = self.add(*SERVERS)
        failing = []

        def fail_first(path):
            if path.endswith("-events"):
                failing.append(path)
                self.nova.respond_to("-events", 500)
                if len(failing) > 1:
                    self.nova._instead_of.clear()

        self.nova.before_response = fail_first
        compute_events.send_due(volume)
        self.assertEqual((3, 2), (len(failing), len(self.nova.events)))

    def test_compute_that_does_not_answer_ends_the_run(self):
        self.add(*SERVERS)
        self.nova.close()
        compute_events.send_due()
        self.assertEqual([0, 0, 0, 1], sorted(row["attempts"] for row in self.rows()))

    def test_refused_credentials_are_logged_and_tried_again(self):
        for status, says in ((400, "URL"), (401, "token"), (403, "role service, or admin")):
            with self.subTest(status):
                self.nova.respond_to("-events", status)
                with self.assertLogs(compute_events.LOG.logger, "WARNING") as logged:
                    compute_events.send_due()
                self.assertIn(says, logged.output[0])
                self.assertEqual([], self.messages())
                self.expire_pauses()

    def test_incomplete_credentials_are_logged_and_leave_the_events(self):
        conf_fixture.override(self, "auth_type", "nonesuch", "nova")
        with self.assertLogs(compute_events.LOG.logger, "ERROR") as logged:
            compute_events.send_due()
        self.assertIn("[nova] is invalid", logged.output[0])
        self.assertEqual([0], [row["attempts"] for row in self.rows()])

    def test_database_that_is_away_ends_the_run(self):
        away = exception.Unavailable(reason="away")
        with (
            mock.patch.object(store, "list_due", side_effect=away),
            self.assertRaises(exception.Unavailable),
        ):
            compute_events.send_due()


class RecorderTest(SendCase):
    def test_recorder_without_credentials_stores_nothing(self):
        self.assertIsNotNone(compute_events.recorder())
        conf_fixture.override(self, "auth_type", None, "nova")
        self.assertIsNone(compute_events.recorder())

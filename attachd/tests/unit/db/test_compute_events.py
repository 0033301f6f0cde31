# SPDX-License-Identifier: Apache-2.0
"""Tests of the events that Compute is still to be sent."""

import datetime
import threading

import sqlalchemy as sa

from attachd.db import compute_events, models
from attachd.db.engine import session
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.wait import TIMEOUT

SERVERS = [f"{number}1111111-2222-3333-4444-555555555555" for number in range(3)]
MINUTE = datetime.timedelta(minutes=1)


class ComputeEventsCase(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(multiattach=True)["id"]

    def attach(self, server=SERVERS[0], state="attached", volume=None, **values):
        values = {"instance_uuid": server, **values}
        return db_rows.add_attachment(volume or self.volume, state, **values)["id"]

    def record(self, volume=None):
        with session.writer() as connection:
            compute_events.record_extended(connection, volume or self.volume)

    def due(self, limit=10, volume=None):
        return compute_events.list_due(limit, volume)

    def servers(self):
        return [event["server_id"] for event in self.due()]


class RecordTest(ComputeEventsCase):
    def test_record_extended_stores_one_event_for_each_server(self):
        self.attach()
        self.attach(SERVERS[1], "connected")
        self.attach(SERVERS[1])
        self.record()
        events = self.due()
        self.assertEqual(SERVERS[:2], sorted(event["server_id"] for event in events))
        for event in events:
            self.assertEqual(
                ("volume-extended", self.volume, self.volume, 0, None),
                (event["name"], event["tag"], event["volume_id"], event["attempts"],
                 event["error"]),
            )  # fmt: skip
            self.assertEqual((db_rows.PROJECT, True), (event["project_id"], event["is_attached"]))

    def test_record_extended_leaves_out_those_without_a_disk_on_a_server(self):
        self.attach(None)
        self.attach(agent="node-1")
        self.attach(connector=None, host=None)  # of a shelved server
        for state in ("reserved", "connecting", "connect_failed", "disconnecting",
                      "disconnect_failed", "withdrawing"):  # fmt: skip
            self.attach(SERVERS[1], state)
        self.attach(volume=db_rows.add_volume()["id"])
        self.record()
        self.assertEqual([], self.servers())

    def test_record_extended_has_servers_of_older_calls(self):
        self.attach(kind="legacy", connector=None, host=None)
        self.record()
        self.assertEqual(SERVERS[:1], self.servers())

    def test_record_extended_replaces_former_events_of_the_volume(self):
        self.attach()
        gone, other = self.attach(SERVERS[1]), db_rows.add_volume()["id"]
        self.attach(volume=other)
        self.record(other)
        self.record()
        former = self.due(volume=self.volume)
        compute_events.claim(former[0], models.now() + MINUTE)
        db_rows.remove_attachment(gone)
        self.record()
        (event,) = self.due(volume=self.volume)
        self.assertEqual((SERVERS[0], 0), (event["server_id"], event["attempts"]))
        self.assertNotIn(event["id"], {item["id"] for item in former})
        self.assertEqual(1, len(self.due(volume=other)))

    def test_record_extended_is_undone_with_its_transaction(self):
        self.attach()
        with self.assertRaises(ZeroDivisionError), session.writer() as connection:
            compute_events.record_extended(connection, self.volume)
            raise ZeroDivisionError
        self.assertEqual([], self.due())


class ClaimTest(ComputeEventsCase):
    def setUp(self):
        super().setUp()
        self.attachment = self.attach()
        self.record()
        (self.event,) = self.due()

    def test_claim_succeeds_once(self):
        until = models.now() + MINUTE
        self.assertTrue(compute_events.claim(self.event, until))
        self.assertFalse(compute_events.claim(self.event, until))
        self.assertEqual([], self.due())

    def test_claim_that_has_ended_is_due_again_and_counts(self):
        compute_events.claim(self.event, models.now() - MINUTE)
        (event,) = self.due()
        self.assertEqual(1, event["attempts"])
        self.assertTrue(compute_events.claim(event, models.now()))

    def test_claim_of_replaced_event_fails(self):
        self.record()
        self.assertFalse(compute_events.claim(self.event, models.now()))

    def test_claims_of_several_processes_have_one_winner(self):
        winners = []
        barrier = threading.Barrier(4)

        def claim():
            barrier.wait(TIMEOUT)
            if compute_events.claim(self.event, models.now() + MINUTE):
                winners.append(1)

        threads = [threading.Thread(target=claim) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([1], winners)

    def test_postpone_stores_error_and_time(self):
        compute_events.claim(self.event, models.now() + MINUTE)
        compute_events.postpone(self.event, "no\nanswer" + "x" * 2000, models.now() - MINUTE)
        (event,) = self.due()
        self.assertEqual(1, event["attempts"])
        self.assertTrue(event["error"].startswith("no answerx"))

    def test_postpone_of_event_claimed_by_another_process_does_nothing(self):
        compute_events.claim(self.event, models.now() - MINUTE)
        (event,) = self.due()
        compute_events.claim(event, models.now() + MINUTE)
        compute_events.postpone(self.event, "late", models.now() - MINUTE)
        self.assertEqual([], self.due())

    def test_delete_leaves_event_that_has_replaced_it(self):
        self.record()
        self.assertFalse(compute_events.delete(self.event))
        (event,) = self.due()
        self.assertTrue(compute_events.delete(event))
        self.assertEqual([], self.due())

    def test_list_due_is_bounded_and_sorted(self):
        volumes = [db_rows.add_volume()["id"] for _ in range(3)]
        for volume in volumes:
            self.attach(volume=volume)
            self.record(volume)
        self.assertEqual(
            [self.volume, *volumes[:2]], [event["volume_id"] for event in self.due(3)]
        )

    def test_list_due_shows_that_server_or_volume_is_gone(self):
        db_rows.change_attachment(self.attachment, state="disconnecting")
        self.assertFalse(self.due()[0]["is_attached"])
        db_rows.remove_all()
        (event,) = self.due()
        self.assertEqual((False, None), (event["is_attached"], event["project_id"]))

    def test_list_due_reads_by_index(self):
        table = models.compute_events
        query = sa.select(table.c.id).where(table.c.next_attempt_at <= models.now())
        with session.reader() as connection:
            text = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
            if self.kind == "sqlite":  # The planners of the others read all of a small table.
                text = f"EXPLAIN QUERY PLAN {text}"
                plan = f"{connection.execute(sa.text(text)).all()}"
                self.assertIn("ix_compute_events_next_attempt_at", plan)

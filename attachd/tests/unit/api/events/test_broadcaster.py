# SPDX-License-Identifier: Apache-2.0
"""Tests of the broadcaster of events."""

import datetime
import itertools
import os
import threading
from unittest import mock

import sqlalchemy as sa

from attachd import exception
from attachd.api.events import broadcaster
from attachd.db import models
from attachd.db.attachments import events
from attachd.db.engine import session
from attachd.tests.fixtures import databases
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.unit.api.events.feeding import add_event, end
from attachd.tests.wait import TIMEOUT, wait_until

SUBSCRIBER = broadcaster.Subscriber("p", "u")


class BroadcasterTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        override(self, "interval", 0.02, group="events")
        self.broadcaster = broadcaster.Broadcaster()
        self.enterContext(self.broadcaster.subscribed(SUBSCRIBER))
        self.addCleanup(lambda: end(self.broadcaster))

    def places(self, place, seconds=TIMEOUT):
        return [
            item.row["revision"] for item in self.broadcaster.read_after(place, seconds).events
        ]

    def test_read_after_returns_past_events_or_waits(self):
        add_event(3)
        events.assign_sequence()
        self.assertEqual([1, 2, 3], self.places(0))
        self.assertEqual([], self.places(3, 0.01))
        later = threading.Timer(0.1, add_event)
        later.start()
        self.assertEqual([4], self.places(3))
        later.join()

    def test_cached_events_are_read_once(self):
        self.assertEqual([], self.places(0, 0))
        add_event(5)
        self.assertEqual([1, 2, 3, 4, 5], self.caught_up(5))
        with mock.patch.object(events, "list_after") as asked:
            self.assertEqual([3, 4, 5], self.places(2))
        asked.assert_not_called()

    def caught_up(self, place):
        wait_until(lambda: self.broadcaster._last == place)
        return self.places(0)

    def test_events_before_cache_are_read_from_database(self):
        small = mock.patch.object(broadcaster, "CACHE_SIZE", 2)
        with small:
            self.broadcaster = broadcaster.Broadcaster()
            self.enterContext(self.broadcaster.subscribed(SUBSCRIBER))
            self.assertEqual([], self.places(0, 0))
            add_event(5)
            self.assertEqual([1, 2, 3, 4, 5], self.caught_up(5))
            with mock.patch.object(events, "list_after") as asked:
                self.assertEqual([4, 5], self.places(3))
            asked.assert_not_called()

    def test_past_events_of_other_projects_are_not_read(self):
        add_event(3, project_id="q")
        attachment_id = add_event(project_id="p")
        add_event(2, project_id="q")
        with mock.patch.object(broadcaster, "PAGE_SIZE", 2):
            batch = self.broadcaster.read_after(0, TIMEOUT, "p")
            self.assertEqual(
                [attachment_id], [event.row["attachment_id"] for event in batch.events]
            )
            self.assertEqual(6, batch.revision)
            self.assertEqual(2, self.broadcaster.read_after(0, TIMEOUT, "q").revision)

    def test_future_revision_waits(self):
        self.assertEqual([], self.places(0, 0))
        self.assertEqual([], self.places(7, 0.05))

    def test_purged_events_raise_events_expired(self):
        add_event(3)
        self.assertEqual([], self.places(events.assign_sequence().assigned, 0))
        events.purge(models.now() + datetime.timedelta(seconds=9), 2)
        with self.assertRaisesRegex(exception.EventsExpired, "since revision 0.*revision 3"):
            self.broadcaster.read_after(0, TIMEOUT)
        self.assertEqual([3], self.places(2))

    def test_events_purged_before_poll_are_skipped(self):
        self.assertEqual([], self.places(0, 0))
        with mock.patch.object(events, "assign_sequence", return_value=events.Sequence(0, 0)):
            add_event(2)
        given = events.assign_sequence()
        events.purge(models.now() + datetime.timedelta(seconds=9), 9)
        add_event()
        self.assertEqual([3], wait_until(lambda: self.places(given.assigned)))

    def test_events_lost_by_failover_are_not_sent(self):
        add_event(5)
        self.assertEqual([], self.places(events.assign_sequence().assigned, 0))
        add_event()
        self.assertEqual([6], self.places(5))
        with session.writer() as connection:
            connection.execute(sa.delete(models.events).where(models.events.c.revision > 3))
            connection.execute(sa.update(models.event_sequence).values(assigned=3))
        wait_until(
            lambda: self.assertEqual([], self.places(6, 0.02)) or self.broadcaster._last == 3
        )
        other = add_event()
        (event,) = self.broadcaster.read_after(3, TIMEOUT).events
        self.assertEqual((4, other), (event.row["revision"], event.row["attachment_id"]))

    def test_database_outage_is_survived(self):
        self.assertEqual([], self.places(0, 0))
        real, away, tries = events.assign_sequence, threading.Event(), itertools.count()

        def give():
            if away.is_set():
                return real()
            if next(tries) == 2:
                away.set()
            raise exception.Unavailable(reason="The database does not answer.")

        silent = mock.patch.object(events, "assign_sequence", give)
        with self.assertLogs(broadcaster.LOG.logger, "WARNING") as logged, silent:
            self.assertTrue(away.wait(TIMEOUT))
            add_event()
            self.assertEqual([1], self.places(0))
        self.assertEqual(1, len(logged.output))

    def test_subscribers_are_limited(self):
        override(self, "max_watchers", 1, group="events")
        with self.assertRaisesRegex(exception.Unavailable, "max_watchers"):
            self.broadcaster.subscribe(SUBSCRIBER)
        self.broadcaster.unsubscribe(SUBSCRIBER)
        self.broadcaster.subscribe(SUBSCRIBER)

    def test_subscribers_of_project_do_not_exclude_others(self):
        override(self, "max_watchers_per_project", 2, group="events")
        other = SUBSCRIBER._replace(user_id="v")
        self.broadcaster.subscribe(other)
        with self.assertRaisesRegex(exception.Unavailable, "Project p .*max_watchers_per_project"):
            self.broadcaster.subscribe(SUBSCRIBER._replace(user_id="w"))
        self.broadcaster.subscribe(broadcaster.Subscriber("q", "w"))
        self.broadcaster.unsubscribe(other)
        self.broadcaster.subscribe(SUBSCRIBER._replace(user_id="w"))

    def test_subscribers_of_user_are_limited_in_all_projects(self):
        override(self, "max_watchers_per_user", 2, group="events")
        self.broadcaster.subscribe(SUBSCRIBER._replace(project_id="q"))
        with self.assertRaisesRegex(exception.Unavailable, "User u .*max_watchers_per_user"):
            self.broadcaster.subscribe(SUBSCRIBER._replace(project_id="r"))
        self.broadcaster.subscribe(SUBSCRIBER._replace(user_id="v"))

    def test_close_wakes_subscribers(self):
        waiting = threading.Thread(target=self.places, args=(0,))
        waiting.start()
        self.broadcaster.close()
        waiting.join(TIMEOUT)
        self.assertFalse(waiting.is_alive())
        self.assertTrue(self.broadcaster.closing)

    def test_thread_stops_without_subscribers(self):
        # A slow thread does not see the subscriber, and would end as well.
        with mock.patch.object(broadcaster, "_IDLE_TIMEOUT", TIMEOUT):
            self.assertEqual([], self.places(0, 0))
            (thread,) = [item for item in threading.enumerate() if item.name == "events"]
            self.broadcaster.unsubscribe(SUBSCRIBER)
        with mock.patch.object(broadcaster, "_IDLE_TIMEOUT", 0.05):
            thread.join(TIMEOUT)
        self.assertFalse(thread.is_alive())
        self.broadcaster.subscribe(SUBSCRIBER)
        later = threading.Timer(0.1, add_event)
        later.start()
        self.assertEqual([1], self.places(0))
        later.join()

    def test_forked_process_has_new_broadcaster(self):
        before = broadcaster.get()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, b"same" if broadcaster.get() is before else b"other")
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(b"other", os.read(reading, 9))
        os.close(reading)
        os.close(writing)

# SPDX-License-Identifier: Apache-2.0
"""Tests of watches and timelines."""

import datetime
import threading
import unittest
from unittest import mock

from oslo_utils import timeutils
import webob

from attachd import exception
from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.events import broadcaster, handlers, parameters, sse
from attachd.db.attachments import events
from attachd.tests.fixtures import api_context
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.unit.api.events.feeding import add_event, end


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        override(self, "interval", 0.02, group="events")
        # The broadcaster of the process may have events of another test's database.
        self.broadcaster = own = broadcaster.Broadcaster()
        self.addCleanup(end, own)
        self.enterContext(mock.patch.object(broadcaster, "get", return_value=own))

    def watch(self, *roles, headers=None, **query):
        request = webob.Request.blank("/", headers=headers or {})
        self.response = webob.Response()
        return handlers.watch(api_context.make_context(*roles), query, request, self.response)

    def places(self, **query):
        answer = self.watch(**query)
        return [event["revision"] for event in answer["events"]], answer["revision"]


class PollTest(Case):
    def test_watch_without_since_returns_revision(self):
        add_event(2)
        self.assertEqual(([], 2), self.places())

    def test_past_events_are_returned_at_once(self):
        add_event(3)
        self.assertEqual(([2, 3], 3), self.places(since="1"))
        self.assertEqual(([2], 2), self.places(since="1", limit="1"))
        self.assertEqual(([], 3), self.places(since="3"))

    def test_revision_passes_events_that_do_not_match(self):
        add_event(2)
        attachment_id = add_event()
        add_event(1, project_id=api_context.OTHER_PROJECT)
        self.assertEqual(([3], 4), self.places(since="0", attachment_id=attachment_id))

    def test_events_of_other_projects_are_filtered_by_database(self):
        add_event(3, project_id=api_context.OTHER_PROJECT)
        add_event(1)
        with mock.patch.object(parameters.EventQuery, "matches", return_value=True) as matches:
            self.assertEqual(([4], 4), self.places(since="0"))
        matches.assert_called_once()

    def test_many_events_are_read_in_pages(self):
        with mock.patch.object(broadcaster, "PAGE_SIZE", 2):
            add_event(5)
            self.assertEqual(([1, 2, 3, 4, 5], 5), self.places(since="0"))

    def test_request_reads_some_pages_and_the_next_one_continues(self):
        with mock.patch.object(broadcaster, "PAGE_SIZE", 2):
            add_event(2 * handlers.MAX_PAGES)
            attachment_id = add_event()
            reached = 2 * handlers.MAX_PAGES
            wanted = {"attachment_id": attachment_id}
            self.assertEqual(([], reached), self.places(since="0", **wanted))
            self.assertEqual(
                ([reached + 1], reached + 1), self.places(since=f"{reached}", **wanted)
            )

    def test_purge_during_read_raises_events_expired(self):
        def late(*wanted):
            later = timeutils.utcnow() + datetime.timedelta(hours=1)
            self.assertEqual(1, events.purge(later, 1))
            return read(*wanted)

        add_event(3)
        read = events.list_after
        with mock.patch.object(events, "list_after", side_effect=late):
            self.assertRaises(exception.EventsExpired, self.places, since="0")
        self.assertEqual(([3], 3), self.places(since="2"))

    def test_wait_returns_first_event(self):
        later = threading.Timer(0.1, add_event)
        later.start()
        self.assertEqual(([1], 1), self.places(since="0", wait="60"))
        later.join()

    def test_wait_timeout_returns_revision(self):
        now, read_after = 1000.0, self.broadcaster.read_after

        def pass_time(*wanted):
            nonlocal now
            found = read_after(*wanted)
            now += 60
            return found

        later = threading.Timer(0.1, add_event, kwargs={"project_id": api_context.OTHER_PROJECT})
        with (
            mock.patch.object(handlers, "time", mock.Mock(monotonic=lambda: now)),
            mock.patch.object(self.broadcaster, "read_after", pass_time),
        ):
            later.start()
            self.assertEqual(([], 1), self.places(since="0", wait="50"))
        later.join()

    def test_unknown_revision_raises_events_expired(self):
        with self.assertRaises(exception.EventsExpired):
            self.watch(since="1")


class StreamTest(Case):
    accept = {"Accept": "text/event-stream"}

    def test_stream_starts_after_last_event_id(self):
        add_event(3)
        answer = self.watch(headers=self.accept | {"Last-Event-ID": "2"}, since="0")
        self.addCleanup(answer.close)
        self.assertEqual("text/event-stream", self.response.content_type)
        self.assertEqual("no", self.response.headers["X-Accel-Buffering"])
        pieces = iter(answer)
        self.assertIn(b"id: 2\n", next(pieces))
        self.assertIn(b"id: 3\n", next(pieces))

    def test_stream_without_since_starts_now(self):
        add_event(3)
        answer = self.watch(headers=self.accept)
        self.addCleanup(answer.close)
        self.assertIsInstance(answer, sse.EventStream)
        self.assertIn(b"id: 3\n", next(iter(answer)))

    def test_stream_with_unknown_revision_is_refused(self):
        with self.assertRaises(exception.EventsExpired):
            self.watch(headers=self.accept, since="1")


class DeclaredTest(unittest.TestCase):
    def test_endpoints_need_attachd_version(self):
        declared = [
            api_endpoint
            for api_endpoint in endpoint.load()
            if api_endpoint.handler.__module__ == handlers.__name__
        ]
        self.assertEqual([mv.ATTACHD_1_0] * 2, [item.attachd_since for item in declared])
        self.assertEqual(set(parameters.QUERY_PARAMETERS), set(declared[0].doc.parameters))


class TimelineTest(api_context.ApiContextCase):
    def test_timeline_is_ordered_and_limited_to_project(self):
        attachment_id = add_event(2)
        result = handlers.timeline(api_context.make_context(), attachment_id)["timeline"]
        self.assertEqual([1, 2], [item["revision"] for item in result])
        self.assertNotIn("process", result[0])
        stranger = api_context.make_context(project=api_context.OTHER_PROJECT)
        with self.assertRaises(exception.AttachmentNotFound):
            handlers.timeline(stranger, attachment_id)

    def test_timeline_for_administrators_has_all_projects_and_internals(self):
        attachment_id = add_event(project_id=api_context.OTHER_PROJECT)
        (result,) = handlers.timeline(api_context.make_context(*api_context.ADMIN), attachment_id)[
            "timeline"
        ]
        self.assertIn("process", result)

# SPDX-License-Identifier: Apache-2.0
"""Tests of server-sent events."""

import datetime
import json
from unittest import mock

from attachd import exception
from attachd.api.events import broadcaster, parameters, sse
from attachd.db import models
from attachd.db.attachments import events
from attachd.tests.fixtures import api_context
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.unit.api.events.feeding import add_event, end

SUBSCRIBER = broadcaster.Subscriber("p", "u")


class StreamTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        override(self, "interval", 0.02, group="events")
        self.broadcaster = broadcaster.Broadcaster()
        self.addCleanup(end, self.broadcaster)
        self.event_query = parameters.read(api_context.make_context(), {})

    def open(self, place=0):
        made = sse.EventStream(self.broadcaster, SUBSCRIBER, self.event_query, place)
        self.addCleanup(made.close)
        return made, iter(made)

    def test_event_id_is_revision(self):
        attachment_id, _theirs = add_event(), add_event(project_id=api_context.OTHER_PROJECT)
        events.assign_sequence()
        _stream, pieces = self.open()
        self.assertEqual(b"retry: 1000\nid: 0\n\n", next(pieces))
        head, _, rest = next(pieces).decode().partition("data: ")
        self.assertEqual("id: 1\nevent: attachment\n", head)
        self.assertEqual(attachment_id, json.loads(rest)["attachment_id"])
        self.assertTrue(rest.endswith("}\n\n"))

    def test_hidden_events_advance_revision(self):
        add_event(project_id=api_context.OTHER_PROJECT)
        events.assign_sequence()
        _stream, pieces = self.open()
        next(pieces)
        self.assertEqual(b"id: 1\n\n", next(pieces))

    def test_heartbeat_is_sent_without_events(self):
        with mock.patch.object(sse, "HEARTBEAT", 0.01):
            _stream, pieces = self.open()
            self.assertEqual(b"id: 0\n\n", [next(pieces) for _ in range(3)][-1])

    def test_stream_ends_after_longest_watch(self):
        override(self, "longest_watch", 1, group="events")
        _stream, pieces = self.open()
        self.assertLess(len(list(pieces)), 10)

    def test_stream_ends_with_process(self):
        _stream, pieces = self.open()
        next(pieces)
        self.broadcaster.close()
        self.assertEqual([], list(pieces))

    def test_stream_ends_at_gap(self):
        add_event(2)
        self.broadcaster.subscribe(SUBSCRIBER)
        self.broadcaster.read_after(events.assign_sequence().assigned, 0)
        _stream, pieces = self.open()
        events.purge(models.now() + datetime.timedelta(seconds=9), 9)
        self.assertEqual([b"retry: 1000\nid: 0\n\n"], list(pieces))

    def test_stream_is_one_subscriber_until_closed(self):
        override(self, "max_watchers", 1, group="events")
        made, pieces = self.open()
        self.assertRaises(exception.Unavailable, self.open)
        next(pieces)
        pieces.close()
        made.close()
        self.open()
        self.assertRaises(exception.Unavailable, self.open)

# SPDX-License-Identifier: Apache-2.0
"""Tests of the query parameters of a watch."""

from attachd import exception
from attachd.api.events import parameters
from attachd.db.attachments import events
from attachd.tests.fixtures import api_context, db_rows

ROW = {
    "revision": 1,
    "type": "reserved",
    "attachment_id": "a" * 8,
    "volume_id": "v",
    "project_id": db_rows.PROJECT,
    "created_at": None,
    "details": {"error": "burnt"},
}


class EventQueryTest(api_context.ApiContextCase):
    def read(self, *roles, last_seen=None, **query):
        return parameters.read(api_context.make_context(*roles), query, last_seen)

    def test_default_is_own_project_without_past_events(self):
        event_query = self.read()
        self.assertEqual(
            (None, 0, parameters.MAX_EVENTS),
            (event_query.since, event_query.wait, event_query.limit),
        )
        self.assertIsNotNone(event_query.shown(ROW))
        self.assertIsNone(event_query.shown(ROW | {"project_id": api_context.OTHER_PROJECT}))

    def test_numbers_have_bounds(self):
        event_query = self.read(since="7", wait="60", limit="1")
        self.assertEqual((7, 60, 1), (event_query.since, event_query.wait, event_query.limit))
        wrong = {
            "since": ("-1", "x", "", "9" * 30, "1.5", "٣"),
            "wait": ("61", " 1", "0" * 19 + "1000000"),
            "limit": ("0", "1001", "0" * 19 + "1000000", "0" * 5000 + "1"),
        }
        for name, text in [(item, text) for item in wrong for text in wrong[item]]:
            refused = self.assertRaisesRegex(exception.InvalidInput, f"attribute {name}")
            with self.subTest(name=name, text=text), refused:
                self.read(**{name: text})

    def test_last_event_id_sets_since(self):
        self.assertEqual(9, self.read(since="7", last_seen="9").since)
        with self.assertRaises(exception.InvalidInput):
            self.read(last_seen="nine")

    def test_unknown_parameter_is_named(self):
        with self.assertRaisesRegex(exception.InvalidInput, "attribute colour.*volume_id"):
            self.read(colour="red")

    def test_volume_or_attachment_can_be_selected(self):
        self.assertIsNotNone(self.read(volume_id="v", attachment_id="a" * 8).shown(ROW))
        self.assertIsNone(self.read(volume_id="w").shown(ROW))
        self.assertIsNone(self.read(attachment_id="b").shown(ROW))

    def test_administrators_get_all_projects_and_internals(self):
        event_query = self.read(*api_context.ADMIN, all_tenants="1")
        shown = event_query.shown(ROW | {"project_id": api_context.OTHER_PROJECT})
        self.assertEqual("burnt", shown["error"])
        self.assertNotIn("error", self.read().shown(ROW))
        attachment = self.read(all_tenants="1")
        self.assertIsNone(attachment.shown(ROW | {"project_id": api_context.OTHER_PROJECT}))

    def test_expired_revision_raises_events_expired(self):
        existing = events.Sequence(assigned=9, purged=3)
        for since in (3, 9):
            parameters.check(since, existing)
        for since in (2, 10):
            with self.assertRaises(exception.EventsExpired):
                parameters.check(since, existing)

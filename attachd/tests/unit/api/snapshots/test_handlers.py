# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of snapshots, below HTTP."""

from unittest import mock

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.snapshots import backend_calls, handlers
from attachd.tests.fixtures import api_context, captured_notifications, db_rows


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend()
        self.ctx = api_context.make_context()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))
        self.volume = db_rows.add_volume(size_gib=2)["id"]

    def create(self, version=mv.LATEST, **requested):
        body = {"snapshot": {"volume_id": self.volume, **requested}}
        return handlers.create(self.ctx, body, version)["snapshot"]


class CreateTest(Case):
    def test_create_stores_sends_and_shows_snapshot(self):
        shown = self.create(name=" n ", metadata={"k": "v"})
        self.assertEqual(
            ("creating", 2, "n", {"k": "v"}),
            tuple(shown[key] for key in ("status", "size", "name", "metadata")),
        )
        self.manager_api.create_snapshot.assert_called_once_with(
            self.ctx, "here@fake", shown["id"]
        )

    def test_volume_in_use_needs_force_before_its_version(self):
        db_rows.add_attachment(self.volume, "attached")
        before = mv.Version(3, 65)
        for force in (None, False, "false"):
            with self.assertRaisesRegex(exception.InvalidVolume, "in-use"):
                self.create(before, force=force)
        self.create(before, force="true")
        self.create()
        self.create(force=True)
        with self.assertRaisesRegex(exception.BadRequest, "'force' flag is invalid"):
            self.create(force=False)

    def test_snapshot_of_other_project_is_not_found(self):
        self.volume = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)["id"]
        with self.assertRaises(exception.VolumeNotFound):
            self.create()
        self.volume = None
        with self.assertRaises(exception.VolumeNotFound):
            self.create()


class ChangeTest(Case):
    def setUp(self):
        super().setUp()
        self.snapshot = db_rows.add_snapshot(self.volume, name="old", description="kept")["id"]

    def test_update_changes_only_what_is_requested_and_notifies(self):
        captured = captured_notifications.use(self)
        body = {"snapshot": {"name": "new"}}
        shown = handlers.update(self.ctx, self.snapshot, body, mv.LATEST)["snapshot"]
        self.assertEqual(("new", "kept"), (shown["name"], shown["description"]))
        sent = [message["event_type"] for message in captured.messages()]
        self.assertEqual(["snapshot.update.start", "snapshot.update.end"], sent)

    def test_delete_names_status_that_forbids_it(self):
        handlers.delete(self.ctx, self.snapshot)
        with self.assertRaisesRegex(exception.InvalidSnapshot, "status is deleting"):
            handlers.delete(self.ctx, self.snapshot)

    def test_reader_changes_nothing(self):
        reader = api_context.make_context("reader")
        with self.assertRaises(exception.Forbidden):
            handlers.delete(reader, self.snapshot)
        self.assertEqual("available", db_rows.get_snapshot(self.snapshot)["state"])


class ListTest(Case):
    def listed(self, handler, version=mv.LATEST, **query):
        return handler(self.ctx, query, version, api_context.make_links())

    def test_lists_show_snapshots_of_project_newest_first(self):
        first = db_rows.add_snapshot(self.volume)["id"]
        second = db_rows.add_snapshot(self.volume, "error")["id"]
        db_rows.add_snapshot(self.volume, project_id=api_context.OTHER_PROJECT)
        for handler in (handlers.index, handlers.detail):
            found = self.listed(handler)["snapshots"]
            self.assertEqual([second, first], [item["id"] for item in found])
        found = self.listed(handlers.detail, sort="status:asc", status="error")["snapshots"]
        self.assertEqual([second], [item["id"] for item in found])

    def test_page_has_link_and_count(self):
        for _ in range(2):
            db_rows.add_snapshot(self.volume)
        answer = self.listed(handlers.index, limit="1", with_count="true")
        self.assertEqual(2, answer["count"])
        self.assertIn("/v3/", answer["snapshots_links"][0]["href"])
        self.assertIn("/snapshots?", answer["snapshots_links"][0]["href"])

    def test_list_that_no_snapshot_passes_is_empty(self):
        db_rows.add_snapshot(self.volume)
        answer = self.listed(handlers.index, consumes_quota="false", with_count="true")
        self.assertEqual({"snapshots": [], "count": 0}, answer)

# SPDX-License-Identifier: Apache-2.0
"""Tests of which volumes a caller may act on."""

from attachd import exception
from attachd.api.volumes import load, policy
from attachd.db.engine import paging, session
from attachd.db.volumes import volume_metadata, volume_queries
from attachd.tests.fixtures import api_context, db_rows


class LoadTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.own_id = db_rows.add_volume()["id"]
        self.other_id = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)["id"]

    def test_get_returns_volume_of_own_project(self):
        loaded = load.get(api_context.make_context(), self.own_id, policy.UPDATE)
        self.assertEqual(self.own_id, loaded.id)

    def test_get_of_other_project_is_not_found_except_for_admin(self):
        with self.assertRaises(exception.VolumeNotFound):
            load.get(api_context.make_context(), self.other_id, policy.GET)
        loaded = load.get(api_context.make_context(*api_context.ADMIN), self.other_id, policy.GET)
        self.assertEqual(self.other_id, loaded.id)

    def test_get_writable_for_reader_is_forbidden(self):
        load.get(api_context.make_context("reader"), self.own_id, policy.GET)
        with self.assertRaisesRegex(exception.Forbidden, "volume:update"):
            load.get(api_context.make_context("reader"), self.own_id, policy.UPDATE)

    def test_get_writable_in_maintenance_is_refused(self):
        volume = db_rows.add_volume("maintenance")["id"]
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            load.get_writable(api_context.make_context(), volume, policy.UPDATE)
        load.get_writable(api_context.make_context(), self.own_id, policy.UPDATE)

    def test_from_rows_with_details_takes_one_statement(self):
        ids = [db_rows.add_volume()["id"] for _ in range(3)]
        db_rows.add_attachment(ids[1], "attached")
        volume_metadata.merge_image_metadata(ids[2], {"os_type": "linux"})
        page = volume_queries.page({"project_id": db_rows.PROJECT}, paging.Page(limit=3))
        before = session.counters().statements
        loaded = load.from_rows_with_details(api_context.make_context(), page)
        self.assertEqual(1, session.counters().statements - before)
        self.assertEqual([0, 1, 0], [len(item.attachments) for item in loaded])
        self.assertEqual([{"os_type": "linux"}, {}, {}], [item.image_metadata for item in loaded])

    def test_with_details_adds_attachments_and_image_metadata(self):
        db_rows.add_attachment(self.own_id, "attached")
        volume_metadata.merge_image_metadata(self.own_id, {"os_type": "linux"})
        loaded = load.with_details(load.get(api_context.make_context(), self.own_id, policy.GET))
        self.assertEqual(
            (self.own_id, 1, {"os_type": "linux"}),
            (loaded.volume.id, len(loaded.attachments), loaded.image_metadata),
        )

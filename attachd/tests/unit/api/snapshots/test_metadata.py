# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of snapshots' metadata."""

from attachd import exception
from attachd.api.snapshots import metadata
from attachd.tests.fixtures import api_context, db_rows


class MetadataTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.snapshot = db_rows.add_snapshot(db_rows.add_volume()["id"])["id"]

    def call(self, handler, *arguments):
        return handler(self.ctx, self.snapshot, *arguments)

    def test_pairs_are_set_replaced_shown_and_removed(self):
        one, two = {"metadata": {"a": "1"}}, {"metadata": {"b": "2"}}
        self.assertEqual(one, self.call(metadata.merge, one))
        self.assertEqual({"metadata": {"a": "1", "b": "2"}}, self.call(metadata.merge, two))
        self.assertEqual(two, self.call(metadata.replace, two))
        self.assertEqual(
            {"meta": {"b": "3"}}, self.call(metadata.update, "b", {"meta": {"b": "3"}})
        )
        self.assertEqual({"meta": {"b": "3"}}, self.call(metadata.show, "b"))
        self.call(metadata.delete, "b")
        self.assertEqual({"metadata": {}}, self.call(metadata.show_all))
        with self.assertRaisesRegex(exception.NotFound, "key b"):
            self.call(metadata.show, "b")

    def test_other_key_than_that_of_url_is_refused(self):
        with self.assertRaisesRegex(exception.BadRequest, "mismatch"):
            self.call(metadata.update, "a", {"meta": {"b": "1"}})

    def test_reader_reads_only(self):
        self.ctx = api_context.make_context("reader")
        self.call(metadata.show_all)
        for handler in (metadata.merge, metadata.replace):
            with self.assertRaises(exception.Forbidden):
                self.call(handler, {"metadata": {}})

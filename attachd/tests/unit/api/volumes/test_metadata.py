# SPDX-License-Identifier: Apache-2.0
"""Tests of the metadata of volumes and its conditional writes."""

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import metadata
from attachd.tests.fixtures import api_context, db_rows


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()
        self.volume = db_rows.add_volume()["id"]
        metadata.merge(self.ctx, self.volume, {"metadata": {"a": "1", "b": "2"}})

    def read(self, version=mv.LATEST):
        response = webob.Response()
        shown = metadata.show_all(self.ctx, self.volume, version, response)
        return shown["metadata"], response.headers.get("ETag")

    def request(self, if_match=None):
        return webob.Request.blank("/", headers={"If-Match": if_match} if if_match else {})

    def replace(self, pairs, if_match=None, version=mv.LATEST):
        request = self.request(if_match)
        return metadata.replace(self.ctx, self.volume, {"metadata": pairs}, version, request)

    def put(self, key, pair, if_match=None, version=mv.LATEST):
        request = self.request(if_match)
        return metadata.update(self.ctx, self.volume, key, {"meta": pair}, version, request)


class PairsTest(Case):
    def test_merge_keeps_other_pairs(self):
        shown = metadata.merge(self.ctx, self.volume, {"metadata": {"b": "3", "c": "4"}})
        self.assertEqual({"metadata": {"a": "1", "b": "3", "c": "4"}}, shown)

    def test_replace_removes_other_pairs(self):
        self.assertEqual({"metadata": {"c": "4"}}, self.replace({"c": "4"}))
        self.assertEqual({"c": "4"}, self.read()[0])

    def test_show_and_update_one_pair(self):
        self.assertEqual({"meta": {"a": "1"}}, metadata.show(self.ctx, self.volume, "a"))
        self.assertEqual({"meta": {"a": "9"}}, self.put("a", {"a": "9"}))
        metadata.delete(self.ctx, self.volume, "b")
        self.assertEqual({"a": "9"}, self.read()[0])

    def test_update_with_different_key_in_body_is_refused(self):
        with self.assertRaisesRegex(exception.BadRequest, "mismatch"):
            self.put("a", {"b": "9"})

    def test_show_unknown_key_is_not_found(self):
        for act in (metadata.show, metadata.delete):
            with self.assertRaisesRegex(exception.NotFound, "zz") as caught:
                act(self.ctx, self.volume, "zz")
            self.assertEqual(404, caught.exception.code)

    def test_write_in_maintenance_is_refused(self):
        db_rows.change_volume(self.volume, state="maintenance", status="maintenance")
        acts = (
            lambda: metadata.merge(self.ctx, self.volume, {"metadata": {}}),
            lambda: self.replace({}),
            lambda: self.put("a", {"a": "9"}),
            lambda: metadata.delete(self.ctx, self.volume, "a"),
        )
        for act in acts:
            with self.assertRaises(exception.InvalidVolume):
                act()
        self.assertEqual({"a": "1", "b": "2"}, self.read()[0])

    def test_reader_may_only_read(self):
        self.ctx = api_context.make_context("reader")
        self.read()
        with self.assertRaisesRegex(exception.Forbidden, "delete_volume_metadata"):
            metadata.delete(self.ctx, self.volume, "a")


class EtagTest(Case):
    def test_etag_changes_only_with_pairs(self):
        before = self.read()[1]
        self.assertEqual(before, self.read()[1])
        self.put("a", {"a": "9"})
        self.assertNotEqual(before, self.read()[1])

    def test_etag_is_sent_since_3_15(self):
        self.assertIsNone(self.read(mv.Version(3, 14))[1])
        self.assertIsNotNone(self.read(mv.Version(3, 15))[1])

    def test_write_with_current_etag_succeeds(self):
        etag = self.read()[1]
        self.replace({"c": "3"}, etag)
        self.put("c", {"c": "4"}, self.read()[1])
        self.assertEqual({"c": "4"}, self.read()[0])

    def test_if_match_accepts_all_header_forms(self):
        etag = self.read()[1]
        for form in (etag, etag.strip('"'), f'"other", {etag}', f"W/{etag}", "*"):
            self.replace({"a": "1", "b": "2"}, form)

    def test_write_with_outdated_etag_is_refused(self):
        etag = self.read()[1]
        self.put("a", {"a": "9"})
        for act in (lambda: self.replace({}, etag), lambda: self.put("a", {"a": "0"}, etag)):
            with self.assertRaises(exception.PreconditionFailed) as caught:
                act()
            self.assertEqual(412, caught.exception.code)
        self.assertEqual({"a": "9", "b": "2"}, self.read()[0])

    def test_if_match_before_3_15_is_ignored(self):
        self.replace({}, "other", mv.Version(3, 14))
        self.assertEqual({}, self.read()[0])

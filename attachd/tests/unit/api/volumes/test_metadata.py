# SPDX-License-Identifier: Apache-2.0
"""Pairs of metadata, and who may write them when."""

import unittest

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import metadata
from attachd.tests import asking, rows


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.ctx = asking.context()
        self.volume = rows.add_volume()["id"]
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
    def test_merging_keeps_the_others(self):
        shown = metadata.merge(self.ctx, self.volume, {"metadata": {"b": "3", "c": "4"}})
        self.assertEqual({"metadata": {"a": "1", "b": "3", "c": "4"}}, shown)

    def test_replacing_removes_the_others(self):
        self.assertEqual({"metadata": {"c": "4"}}, self.replace({"c": "4"}))
        self.assertEqual({"c": "4"}, self.read()[0])

    def test_one_pair(self):
        self.assertEqual({"meta": {"a": "1"}}, metadata.show(self.ctx, self.volume, "a"))
        self.assertEqual({"meta": {"a": "9"}}, self.put("a", {"a": "9"}))
        metadata.delete(self.ctx, self.volume, "b")
        self.assertEqual({"a": "9"}, self.read()[0])

    def test_the_key_of_url_and_body_are_the_same(self):
        with self.assertRaisesRegex(exception.BadRequest, "mismatch"):
            self.put("a", {"b": "9"})

    def test_an_unknown_key_is_not_found(self):
        for act in (metadata.show, metadata.delete):
            with self.assertRaisesRegex(exception.NotFound, "zz") as caught:
                act(self.ctx, self.volume, "zz")
            self.assertEqual(404, caught.exception.code)

    def test_nothing_is_written_in_maintenance(self):
        rows.change_volume(self.volume, state="maintenance", status="maintenance")
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

    def test_a_reader_only_reads(self):
        self.ctx = asking.context("reader")
        self.read()
        with self.assertRaisesRegex(exception.Forbidden, "delete_volume_metadata"):
            metadata.delete(self.ctx, self.volume, "a")


class EtagTest(Case):
    def test_it_changes_with_the_pairs_and_only_with_them(self):
        before = self.read()[1]
        self.assertEqual(before, self.read()[1])
        self.put("a", {"a": "9"})
        self.assertNotEqual(before, self.read()[1])

    def test_it_came_with_3_15(self):
        self.assertIsNone(self.read(mv.Version(3, 14))[1])
        self.assertIsNotNone(self.read(mv.Version(3, 15))[1])

    def test_whoever_has_read_the_latest_may_write(self):
        etag = self.read()[1]
        self.replace({"c": "3"}, etag)
        self.put("c", {"c": "4"}, self.read()[1])
        self.assertEqual({"c": "4"}, self.read()[0])

    def test_forms_of_the_header(self):
        etag = self.read()[1]
        for form in (etag, etag.strip('"'), f'"other", {etag}', f"W/{etag}", "*"):
            self.replace({"a": "1", "b": "2"}, form)

    def test_whoever_has_not_is_told(self):
        etag = self.read()[1]
        self.put("a", {"a": "9"})
        for act in (lambda: self.replace({}, etag), lambda: self.put("a", {"a": "0"}, etag)):
            with self.assertRaises(exception.PreconditionFailed) as caught:
                act()
            self.assertEqual(412, caught.exception.code)
        self.assertEqual({"a": "9", "b": "2"}, self.read()[0])

    def test_before_3_15_the_header_means_nothing(self):
        self.replace({}, "other", mv.Version(3, 14))
        self.assertEqual({}, self.read()[0])

# SPDX-License-Identifier: Apache-2.0
"""Pages of volumes, their order, their count, their sum."""

import datetime
import unittest
import urllib.parse

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import lists
from attachd.db import api, volume_metadata
from attachd.objects import Volume
from attachd.states import Event
from attachd.tests import asking, rows


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.ctx = asking.context()

    def add(self, name, **values):
        first = datetime.datetime.fromisoformat("2026-01-01")
        day = first + datetime.timedelta(days=len(rows.volumes()))
        return rows.add_volume(name=name, created_at=day, **values)

    def remove(self, volume_id):
        volume = Volume.get(self.ctx, volume_id)
        volume.fire(Event.DELETE)
        volume.fire(Event.DELETED)

    def list(self, handler=lists.detail, version=mv.LATEST, own=None, **query):
        return handler(self.ctx, query, version, asking.links(), own)

    def names(self, **query):
        return "".join(each["name"] for each in self.list(**query)["volumes"])


class OwnTest(Case):
    def test_attachd_1_0_tells_how_many_times_each_is_attached(self):
        often = self.add("a", multiattach=True)["id"]
        self.add("b")
        for _each in range(3):
            rows.add_attachment(often, "attached")
        rows.add_attachment(often, "reserved")
        for handler in (lists.index, lists.detail):
            found = self.list(handler, own=mv.EXT_BASE)["volumes"]
            self.assertEqual([0, 3], [each["attachment_count"] for each in found])
            self.assertNotIn("attachment_count", self.list(handler)["volumes"][0])


class PagesTest(Case):
    def setUp(self):
        super().setUp()
        for name in "abcde":
            self.add(name)

    def test_newest_first(self):
        self.assertEqual("edcba", self.names())

    def test_a_link_leads_through_all_pages(self):
        for handler, path in ((lists.index, "volumes"), (lists.detail, "volumes/detail")):
            query, seen = {"limit": "2", "consumes_quota": "true"}, ""
            while query:
                answer = self.list(handler, **query)
                seen += "".join(each["name"] for each in answer["volumes"])
                query = {}
                for link in answer.get("volumes_links", ()):
                    url = urllib.parse.urlsplit(link["href"])
                    self.assertEqual(f"/v3/{rows.PROJECT}/{path}", url.path)
                    query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                    self.assertIn("consumes_quota", query)
            self.assertEqual("edcba", seen)

    def test_links_stay_right_while_volumes_come_and_go(self):
        ids = {row["name"]: row["id"] for row in rows.volumes()}
        answer = self.list(limit="2")
        self.assertEqual(["e", "d"], [each["name"] for each in answer["volumes"]])
        self.add("new")
        for name in "eb":  # one that was seen already, and one that was not
            self.remove(ids[name])
        url = urllib.parse.urlsplit(answer["volumes_links"][0]["href"])
        self.assertEqual("ca", self.names(**dict(urllib.parse.parse_qsl(url.query))))

    def test_a_link_whose_marker_is_gone_says_to_start_again(self):
        query = {"limit": "2", "marker": rows.volumes()[1]["id"]}
        self.remove(query["marker"])
        with self.assertRaisesRegex(exception.MarkerNotFound, "start again"):
            self.list(**query)

    def test_the_last_page_has_no_link(self):
        self.assertNotIn("volumes_links", self.list(limit="6"))

    def test_a_count_is_of_all_pages_and_of_the_filters(self):
        answer = self.list(limit="2", with_count="True")
        self.assertEqual((2, 5), (len(answer["volumes"]), answer["count"]))
        self.assertEqual(1, self.list(name="c", with_count="1")["count"])
        self.assertEqual(0, self.list(group_id="g", with_count="1")["count"])

    def test_a_count_is_refused_from_3_31_and_ignored_before(self):
        query = {"with_count": "True"}
        self.assertNotIn("count", self.list(version=mv.Version(3, 30), **query))
        for minor in (31, 44):
            with self.assertRaisesRegex(exception.BadRequest, "with_count"):
                self.list(version=mv.Version(3, minor), **query)
        self.assertNotIn("count", self.list())

    def test_a_page_is_three_statements(self):
        volume_metadata.merge(rows.volumes()[0]["id"], {"k": "v"})
        before = api.counters().statements
        self.list()
        self.assertEqual(3, api.counters().statements - before)

    def test_sizes_do_not_make_more_statements(self):
        for number in range(50):
            volume = self.add(str(number))
            volume_metadata.merge(volume["id"], {"k": "v"})
            rows.add_attachment(volume["id"], "attached")
        before = api.counters().statements
        self.assertEqual(55, len(self.list()["volumes"]))
        self.assertEqual(3, api.counters().statements - before)


class OrderTest(Case):
    def test_by_what_clients_call_the_columns(self):
        self.add("b", size_gib=1)
        self.add("a", size_gib=3)
        self.add("c", size_gib=2)
        self.assertEqual("abc", self.names(sort="name:asc"))
        self.assertEqual("abc", self.names(sort_key="display_name", sort_dir="asc"))
        self.assertEqual("acb", self.names(sort="size"))

    def test_not_by_where_volumes_are(self):
        for key in ("host", "size_gib", "nonsense", ""):
            with self.assertRaisesRegex(exception.BadRequest, "sort key"):
                self.list(sort=key)


class FiltersTest(Case):
    def test_what_is_found(self):
        self.add("free", availability_zone="z")
        shared = self.add("used", size_gib=7)
        rows.add_attachment(shared["id"], "attached")
        volume_metadata.merge(shared["id"], {"k": "v"})
        self.add("other", project_id=asking.OTHER_PROJECT)
        cases = {
            "free": {"status": "available"},
            "used": {"metadata": "{'k': 'v'}"},
            "": {"metadata": "{'k': 'w'}"},
        }
        for expected, query in cases.items():
            with self.subTest(query):
                self.assertEqual(expected, self.names(**query))
        self.assertEqual("used", self.names(size="7"))
        self.assertEqual("free", self.names(created_at="lt:2026-01-02"))
        self.ctx = asking.context(*asking.ADMIN)
        self.assertEqual("usedfree", self.names(**{"name~": "e"}))
        self.assertEqual("otherusedfree", self.names(all_tenants="1"))
        self.assertEqual("other", self.names(all_tenants="1", project_id=asking.OTHER_PROJECT))


class SummaryTest(Case):
    def summary(self, version=mv.LATEST, **query):
        return lists.summary(self.ctx, query, version)["volume-summary"]

    def test_of_the_own_project(self):
        for size in (1, 2):
            volume = self.add("v", size_gib=size)
            volume_metadata.merge(volume["id"], {"k": str(size)})
        self.add("x", project_id=asking.OTHER_PROJECT, size_gib=4)
        own = {"total_count": 2, "total_size": 3, "metadata": {"k": ["1", "2"]}}
        self.assertEqual(own, self.summary())
        self.assertEqual(own, self.summary(all_tenants="1"))
        self.ctx = asking.context(*asking.ADMIN)
        self.assertEqual((3, 7), tuple(self.summary(all_tenants="1").values())[:2])

    def test_its_metadata_came_with_3_36(self):
        self.assertNotIn("metadata", self.summary(mv.Version(3, 35)))

    def test_of_nothing(self):
        self.assertEqual({"total_count": 0, "total_size": 0, "metadata": {}}, self.summary())

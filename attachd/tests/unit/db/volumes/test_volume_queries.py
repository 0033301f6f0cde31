# SPDX-License-Identifier: Apache-2.0
"""Lists of volumes: filters, sums, and their cost."""

import datetime
from unittest import mock

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.paging import Comparison, Page
from attachd.db.types import type_store
from attachd.db.volumes import volume_metadata, volume_queries
from attachd.tests.fixtures import databases, db_rows


class QueriesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.type_id = type_store.create({"name": "fast"})["id"]
        self.a = db_rows.add_volume(name="a", size_gib=2, bootable=True, host="h@b#p")["id"]
        self.b = db_rows.add_volume(
            "error", name="b", volume_type_id=self.type_id, multiattach=True, host="h@c#p"
        )["id"]
        self.c = db_rows.add_volume(name=None, project_id="other", availability_zone="z")["id"]
        db_rows.add_attachment(self.a, "attached")
        volume_metadata.merge(self.a, {"k": "v", "l": "w"})
        volume_metadata.merge(self.b, {"k": "v", "l": "x"})
        volume_metadata.merge_image_metadata(self.b, {"k": "w", "m": "long" * 9999})

    def _ids(self, filters, **page):
        return [row["id"] for row in volume_queries.page(filters, Page(limit=9, **page))]

    def test_page_with_filter_returns_matches_newest_first(self):
        cases = [
            ({}, [self.c, self.b, self.a]),
            ({"project_id": db_rows.PROJECT}, [self.b, self.a]),
            ({"name": "a"}, [self.a]),
            ({"name": "A"}, []),
            ({"name": None}, [self.c]),
            ({"status": "in-use"}, [self.a]),
            ({"attach_status": "detached"}, [self.c, self.b]),
            ({"host": "h@c#p"}, [self.b]),
            ({"availability_zone": "z"}, [self.c]),
            ({"volume_type_id": self.type_id}, [self.b]),
            ({"bootable": True}, [self.a]),
            ({"multiattach": False}, [self.c, self.a]),
            ({"size_gib": 2}, [self.a]),
            ({"metadata": {"k": "v"}}, [self.b, self.a]),
            ({"metadata": {"k": "v", "l": "x"}}, [self.b]),
            ({"metadata": {"k": "w"}}, []),
            ({"image_metadata": {"k": "w"}}, [self.b]),
            ({"image_metadata": {"k": "W"}}, []),
            ({"image_metadata": {"k": "w", "m": "long" * 9999}}, [self.b]),
            ({"image_metadata": {"k": "v"}}, []),
            ({"like": {"host": "@b"}}, [self.a]),
            ({"like": {"name": "b"}, "status": "error"}, [self.b]),
        ]
        for filters, expected in cases:
            with self.subTest(filters):
                self.assertEqual(expected, self._ids(filters))
                self.assertEqual(len(expected), volume_queries.count(filters))

    def test_page_rows_equal_single_reads(self):
        page = volume_queries.page({"name": "b"}, Page(limit=1))
        self.assertEqual({"k": "v", "l": "x"}, page[0]["metadata"])
        self.assertEqual({"k": "w", "m": "long" * 9999}, page[0]["image_metadata"])
        self.assertEqual("fast", page[0]["volume_type_name"])
        self.assertEqual({**db_rows.get_volume(self.b), **page[0]}, page[0])

    def test_page_is_two_statements(self):
        for _ in range(30):
            db_rows.add_volume()
        for limit, marker in ((1, None), (100, None), (100, self.c)):
            before = session.counters().statements
            volume_queries.page({}, Page(limit=limit, marker=marker))
            self.assertEqual(2, session.counters().statements - before)

    def test_page_with_unknown_marker_is_refused(self):
        self.assertRaises(exception.MarkerNotFound, self._ids, {}, marker="gone")

    def test_page_sorts_by_each_key(self):
        for key in volume_queries.SORTABLE:
            for direction in ("asc", "desc"):
                self.assertEqual(3, len(self._ids({}, sort=((key, direction),))), key)

    def test_usage_returns_number_and_size(self):
        self.assertEqual((2, 3), volume_queries.usage({"project_id": db_rows.PROJECT}))
        self.assertEqual((0, 0), volume_queries.usage({"project_id": "none"}))

    def test_list_metadata_values_groups_by_key(self):
        self.assertEqual({"k": ["v"], "l": ["w", "x"]}, volume_queries.list_metadata_values({}))
        self.assertEqual({}, volume_queries.list_metadata_values({"project_id": "other"}))

    def test_page_compares_times_with_each_operator(self):
        moment = db_rows.get_volume(self.b)["created_at"]
        expected = {
            "lt": [self.a],
            "lte": [self.b, self.a],
            "eq": [self.b],
            "neq": [self.c, self.a],
            "gte": [self.c, self.b],
            "gt": [self.c],
        }
        for verb, found in expected.items():
            times = [Comparison("created_at", verb, moment)]
            self.assertEqual(found, self._ids({"times": times}), verb)

    def test_pages_have_each_volume_of_backend_once(self):
        hosts = ("i@b#p", "i@b#q", "i@b", "i@bb", "I@b#p", None)
        added = [db_rows.add_volume(host=host)["id"] for host in hosts]
        with mock.patch.object(volume_queries, "PAGE", 2):
            pages = list(volume_queries.page_ids("i@b"))
        self.assertEqual([2, 1], list(map(len, pages)))
        self.assertEqual(sorted(added[:3]), [item for page in pages for item in page])
        self.assertEqual([], list(volume_queries.page_ids("i@c")))

    def test_allocated_since_counts_volumes_newer_than_report(self):
        seen = models.now()
        old = seen - datetime.timedelta(hours=1)
        db_rows.add_volume(host="h@b#p", size_gib=100, created_at=old)
        db_rows.add_volume("creating", host="h@b#p", size_gib=10, created_at=old)
        db_rows.add_volume(host="h@b#q", size_gib=1, created_at=seen)
        db_rows.add_volume(host="h@bb#p", size_gib=1000)
        promised = volume_queries.allocated_since({"h@b": seen, "h@d": seen})
        self.assertEqual({"h@b#p": 10, "h@b#q": 1}, promised)
        self.assertEqual({}, volume_queries.allocated_since({}))

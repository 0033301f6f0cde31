# SPDX-License-Identifier: Apache-2.0
"""Lists of snapshots: filters, pages, counts."""

from attachd import exception
from attachd.db.engine import paging
from attachd.db.volumes import snapshot_metadata, snapshot_queries
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.fixtures.conf_fixture import override


class SnapshotQueriesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(availability_zone="east")["id"]
        other = db_rows.add_volume(host="there@fake", availability_zone="west")["id"]
        self.one = db_rows.add_snapshot(self.volume, name="one", user_id="eve")["id"]
        self.two = db_rows.add_snapshot(self.volume, "error", name="two", description="x_y")["id"]
        self.far = db_rows.add_snapshot(other, name="far", project_id="b")["id"]
        snapshot_metadata.merge(self.two, {"a": "b", "c": "d"})

    def listed(self, filters, **page):
        found = snapshot_queries.page(filters, paging.Page(limit=page.pop("limit", 10), **page))
        return [row["id"] for row in found]

    def test_filters_select_snapshots(self):
        for filters, expected in (
            ({}, [self.far, self.two, self.one]),
            ({"project_id": "b"}, [self.far]),
            ({"volume_id": self.volume}, [self.two, self.one]),
            ({"state": "error"}, [self.two]),
            ({"name": "one"}, [self.one]),
            ({"user_id": "eve"}, [self.one]),
            ({"availability_zone": "west"}, [self.far]),
            ({"host": "here@fake#pool"}, [self.two, self.one]),
            ({"metadata": {"a": "b"}}, [self.two]),
            ({"metadata": {"a": "b", "c": "x"}}, []),
            ({"like": {"description": "x_"}}, [self.two]),
            ({"like": {"name": "_"}}, []),
        ):
            with self.subTest(filters):
                self.assertEqual(expected, self.listed(filters))
                self.assertEqual(len(expected), snapshot_queries.count(filters))

    def test_rows_have_metadata_and_columns_of_volume(self):
        (row,) = snapshot_queries.page({"id": self.two}, paging.Page(1))
        self.assertEqual({"a": "b", "c": "d"}, row["metadata"])
        self.assertEqual(
            ("here@fake#pool", "east"), (row["volume_host"], row["availability_zone"])
        )

    def test_pages_follow_marker_and_sort(self):
        self.assertEqual([self.two], self.listed({}, limit=1, marker=self.far))
        self.assertEqual([self.two], self.listed({}, limit=1, offset=1))
        by_name = (("name", "asc"),)
        self.assertEqual([self.far, self.one, self.two], self.listed({}, sort=by_name))
        with self.assertRaises(exception.MarkerNotFound):
            self.listed({"project_id": "b"}, marker=self.one)

    def test_list_that_examines_too_many_rows_is_refused(self):
        override(self, "max_examined_rows", 1, group="api")
        self.assertEqual(3, len(self.listed({})))
        for filters in ({"availability_zone": "west"}, {"like": {"name": "o"}}):
            with self.assertRaisesRegex(exception.BadRequest, "More than 1"):
                self.listed(filters)

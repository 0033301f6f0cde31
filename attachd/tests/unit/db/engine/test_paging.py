# SPDX-License-Identifier: Apache-2.0
"""Pages of a list, in any order, while the list changes."""

import datetime

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import paging, session
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.fixtures.conf_fixture import override

V = models.volumes
START = datetime.datetime(2026, 1, 1)  # noqa: DTZ001 - the tables' times have no zone


class PagesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        # Two of each name, two of each moment, some without a name.
        for number in range(12):
            name = None if number % 4 == 0 else f"n{number % 3}"
            moment = START + datetime.timedelta(seconds=number // 2)
            db_rows.add_volume(
                id=f"{number:02}", name=name, created_at=moment, size_gib=number % 2
            )

    def _page(self, project=None, **page):
        visible = [] if project is None else [V.c.project_id == project]
        with session.reader() as connection:
            statement = sa.select(V.c.id).where(*visible)
            found = paging.fetch_page(connection, statement, V, visible, paging.Page(**page), dict)
        return [row["id"] for row in found]

    def test_list_that_examines_too_many_rows_is_refused(self):
        override(self, "max_examined_rows", 11, group="api")
        sorted_page = paging.Page(2, sort=(("name", "asc"),))

        def check(page=None, bounding=(), **values):
            with session.reader() as connection:
                paging.check_examined(connection, V, bounding, page, **values)

        check(paging.Page(2, offset=11))
        for refused in (
            {},
            {"page": sorted_page},
            {"page": paging.Page(2), "is_search": True},
            {"page": paging.Page(2, offset=12)},
        ):
            with (
                self.subTest(refused),
                self.assertRaisesRegex(exception.BadRequest, "ore than 11"),
            ):
                check(**refused)
        few = [V.c.name == "n1"]
        check(bounding=few)
        check(sorted_page, few)
        check(paging.Page(2), few, is_search=True)

    def test_page_is_newest_first_then_by_id(self):
        self.assertEqual([f"{n:02}" for n in range(11, -1, -1)], self._page(limit=100))

    def test_page_with_named_index_has_same_items(self):
        index = paging.order_index(V, {}, paging.Page(4), ())
        page = paging.Page(4, marker="06")
        with session.reader() as connection:
            found = paging.fetch_page(connection, sa.select(V.c.id), V, [], page, dict, index)
        self.assertEqual(["05", "04", "03", "02"], [row["id"] for row in found])

    def test_walk_over_pages_finds_each_item_once(self):
        orders = [
            (("created_at", "desc"),),
            (("created_at", "asc"),),
            (("name", "asc"),),
            (("name", "desc"), ("size_gib", "asc")),
            (("size_gib", "asc"), ("name", "asc"), ("created_at", "desc")),
            (("id", "asc"),),
            (("id", "desc"), ("name", "asc")),
        ]
        for sort in orders:
            whole = self._page(limit=100, sort=sort)
            self.assertEqual(12, len(set(whole)))
            for limit in (1, 2, 5):
                with self.subTest(sort=sort, limit=limit):
                    walked, marker = [], None
                    while page := self._page(limit=limit, marker=marker, sort=sort):
                        walked += page
                        marker = page[-1]
                    self.assertEqual(whole, walked)

    def test_null_sorts_as_smallest(self):
        nameless = ["00", "04", "08"]
        self.assertEqual(nameless, self._page(limit=3, sort=(("name", "asc"),)))
        last = self._page(limit=12, sort=(("name", "desc"),))[-3:]
        self.assertEqual(nameless[::-1], last)

    def test_ties_sort_by_id_in_last_direction(self):
        ascending = self._page(limit=6, sort=(("size_gib", "asc"),))
        self.assertEqual(["00", "02", "04", "06", "08", "10"], ascending)
        descending = self._page(limit=6, sort=(("size_gib", "desc"),))
        self.assertEqual(["11", "09", "07", "05", "03", "01"], descending)

    def test_changes_between_pages_repeat_and_hide_nothing(self):
        first = self._page(limit=4)
        db_rows.add_volume(id="99")
        with session.writer() as connection:
            connection.execute(sa.delete(V).where(V.c.id == first[0]))
        self.assertEqual(["07", "06"], self._page(limit=2, marker=first[-1]))

    def test_unknown_marker_is_refused_by_name(self):
        for sort in ((("created_at", "desc"),), (("name", "asc"),), (("name", "desc"),)):
            refused = self.assertRaisesRegex(exception.MarkerNotFound, "Marker nowhere")
            with self.subTest(sort=sort), refused:
                self._page(limit=2, marker="nowhere", sort=sort)

    def test_invisible_marker_is_refused(self):
        db_rows.add_volume(id="zz", project_id="other")
        self.assertEqual([], self._page("other", limit=2, marker="zz"))
        for sort in ((("created_at", "desc"),), (("name", "asc"),)):
            with self.assertRaises(exception.MarkerNotFound):
                self._page(db_rows.PROJECT, limit=2, marker="zz", sort=sort)

    def test_page_after_last_item_is_empty(self):
        self.assertEqual([], self._page(limit=2, marker="00"))

    def test_page_of_limit_zero_is_empty(self):
        self.assertEqual([], self._page(limit=0))

    def test_offset_skips_items(self):
        self.assertEqual(["09", "08"], self._page(limit=2, offset=2))
        self.assertEqual(["07", "06"], self._page(limit=2, offset=2, marker="10"))

    def test_unknown_sort_key_is_refused_by_name(self):
        with self.assertRaisesRegex(exception.BadRequest, "nonesuch"):
            self._page(limit=2, sort=(("nonesuch", "asc"),))

    def test_page_is_one_statement(self):
        for page in ({}, {"marker": "05"}, {"sort": (("name", "asc"),), "marker": "05"}):
            before = session.counters().statements
            self._page(limit=3, **page)
            self.assertEqual(1, session.counters().statements - before)


class ConditionsTest(databases.DatabaseCase):
    def _ids(self, *conditions):
        with session.reader() as connection:
            return set(connection.execute(sa.select(V.c.id).where(*conditions)).scalars())

    def test_like_matches_literally(self):
        for number, name in enumerate(("100%", "100 percent", "a_b", "axb", "back\\slash", None)):
            db_rows.add_volume(id=str(number), name=name)
        found = {
            text: self._ids(*paging.like(V, {"name": text}, {"name"}))
            for text in ("100%", "a_b", "\\", "100")
        }
        self.assertEqual({"100%": {"0"}, "a_b": {"2"}, "\\": {"4"}, "100": {"0", "1"}}, found)

    def test_order_index_is_named_unless_filter_is_selective(self):
        newest, by_name = paging.Page(10), paging.Page(10, sort=(("name", "asc"),))
        oldest = paging.Page(10, sort=(("created_at", "asc"),))
        for page in (newest, oldest):
            named = paging.order_index(V, {"project_id": "p", "bootable": True}, page, {"name"})
            self.assertEqual("ix_volumes_project_id_created_at_id", named)
            named = paging.order_index(V, {"bootable": True}, page, {"name"})
            self.assertEqual("ix_volumes_created_at_id", named)
            self.assertIsNone(paging.order_index(V, {"name": "n"}, page, {"name"}))
        self.assertIsNone(paging.order_index(V, {}, by_name, {"name"}))

    def test_equal_uses_present_filters_only(self):
        db_rows.add_volume(id="0", name=None)
        db_rows.add_volume(id="1", name="n", size_gib=2)
        wanted = {"name": None, "other": 1}
        self.assertEqual({"0"}, self._ids(*paging.equal(V, wanted, ("name", "size_gib"))))
        self.assertEqual({"0", "1"}, self._ids(*paging.equal(V, {}, ("name", "size_gib"))))

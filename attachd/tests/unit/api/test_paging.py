# SPDX-License-Identifier: Apache-2.0
"""Tests of the parameters that all lists have."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import paging
from attachd.conf import CONF
from attachd.tests.fixtures import conf_fixture

KEYS = {"created_at": "created_at", "name": "name", "size": "size_gib"}


class ReadTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        CONF.set_override("max_limit", 10, group="api")
        self.addCleanup(CONF.clear_override, "max_limit", group="api")

    def test_default_is_first_page_newest_first(self):
        page = paging.read({}, KEYS)
        self.assertEqual((10, None, 0), (page.limit, page.marker, page.offset))
        self.assertEqual((("created_at", "desc"),), page.sort)

    def test_limit_is_capped(self):
        self.assertEqual(10, paging.read({"limit": "11"}, KEYS).limit)
        self.assertEqual(3, paging.read({"limit": "3"}, KEYS).limit)
        self.assertEqual(0, paging.read({"limit": "0"}, KEYS).limit)

    def test_marker_and_offset_are_parsed(self):
        page = paging.read({"marker": "x", "offset": "7"}, KEYS)
        self.assertEqual(("x", 7), (page.marker, page.offset))

    def test_sort_has_keys_and_directions(self):
        page = paging.read({"sort": "size:asc, name"}, KEYS)
        self.assertEqual((("size_gib", "asc"), ("name", "desc")), page.sort)

    def test_repeated_sort_key_counts_once(self):
        # Each further one would make the statement longer by all those before it.
        page = paging.read({"sort": "name:asc" + ",size,name:desc" * 1000}, KEYS)
        self.assertEqual((("name", "asc"), ("size_gib", "desc")), page.sort)

    def test_sort_key_and_sort_dir_are_supported(self):
        page = paging.read({"sort_key": "name", "sort_dir": "asc"}, KEYS)
        self.assertEqual((("name", "asc"),), page.sort)

    def test_invalid_parameter_is_named(self):
        cases = {
            "limit": ({"limit": "-1"}, {"limit": "x"}, {"limit": ""}, {"limit": "1" * 11}),
            "offset": ({"offset": "-1"}, {"offset": "1.5"}, {"offset": "²"}),
            "sort key": ({"sort": "color"}, {"sort": ""}, {"sort_key": "color"}),
            "sort direction": ({"sort": "name:up"}, {"sort_dir": "up"}),
            "'sort_key' and 'sort_dir'": ({"sort": "name", "sort_key": "name"},),
        }
        for name, queries in cases.items():
            for query in queries:
                with self.subTest(query), self.assertRaisesRegex(exception.BadRequest, name):
                    paging.read(query, KEYS)


class FiltersTest(unittest.TestCase):
    def test_common_parameters_are_no_filters(self):
        query = {"limit": "1", "marker": "x", "all_tenants": "1", "status": "error"}
        self.assertEqual({"status": "error"}, paging.filters(query, {"status"}, mv.LATEST))

    def test_unknown_filter_is_refused_since_3_31(self):
        query = {"color": "red"}
        self.assertEqual({}, paging.filters(query, {"status"}, mv.Version(3, 30)))
        with self.assertRaisesRegex(exception.BadRequest, "Invalid filters color are found"):
            paging.filters(query, {"status"}, mv.RESOURCE_FILTER)

    def test_all_projects_needs_administrator_and_parameter(self):
        cases = [
            (True, {"all_tenants": "1"}, None),
            (True, {"all_tenants": "True"}, None),
            (True, {"all_tenants": "0"}, "p"),
            (True, {"all_tenants": "False"}, "p"),
            (True, {}, "p"),
            (False, {"all_tenants": "1"}, "p"),
        ]
        for is_admin, query, expected in cases:
            with self.subTest(is_admin=is_admin, query=query):
                context = mock.Mock(is_admin=is_admin, project_id="p")
                self.assertEqual(expected, paging.project(context, query))

    def test_caller_without_project_gets_empty_list(self):
        context = mock.Mock(is_admin=False, project_id=None)
        self.assertEqual("", paging.project(context, {"all_tenants": "1"}))


class NextLinkTest(unittest.TestCase):
    def test_next_link_needs_full_page(self):
        made = mock.Mock()
        wanted = mock.Mock(limit=2)
        self.assertEqual([], paging.next_link(made, "/x", {}, wanted, [{"id": 1}]))
        self.assertEqual([], paging.next_link(made, "/x", {}, mock.Mock(limit=0), []))
        paging.next_link(made, "/x", {"a": "b"}, wanted, [{"id": 1}, {"id": 2}])
        made.next.assert_called_once_with("/x", {"a": "b"}, "2")

# SPDX-License-Identifier: Apache-2.0
"""Who may filter which list by what, and what an operator may say about it."""

import datetime
import json
from pathlib import Path
import tempfile
import unittest

import attachd
from attachd import exception
from attachd.api import filters
from attachd.api import microversions as mv
from attachd.tests import asking
from attachd.tests.backends import override


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.member, self.admin = asking.context(), asking.context(*asking.ADMIN)
        filters.reset()
        self.addCleanup(filters.reset)

    def say(self, text):
        """Have the operator say something in a file."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "filters.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        override(self, "resource_query_filters_file", str(path), group="api")
        filters.reset()

    def refused(self, ctx, resource, name, version=mv.LATEST):
        with self.assertRaisesRegex(exception.BadRequest, f"Invalid filters {name} are"):
            filters.requested(ctx, resource, {name: "x"}, version)

    def taken(self, ctx, resource, name, version=mv.LATEST):
        found = filters.requested(ctx, resource, {name: "x", "limit": "1"}, version)
        self.assertEqual({name: "x"}, found)


class RegisterTest(Case):
    def test_no_filter_is_named_twice(self):
        for each in filters.RESOURCES.values():
            self.assertEqual(len(each.known), len(each.default + each.admin_only), each.name)

    def test_what_is_for_all_is_taken_from_all(self):
        for resource in filters.RESOURCES.values():
            for name in filters.for_members(resource):
                self.taken(self.member, resource, name)

    def test_other_filters_are_for_administrators(self):
        for name in filters.ATTACHMENT.admin_only:
            self.taken(self.admin, filters.ATTACHMENT, name)
            self.refused(self.member, filters.ATTACHMENT, name)

    def test_pools_have_no_others(self):
        self.refused(self.admin, filters.POOL, "size")

    def test_unknown_ones_were_ignored_before_3_31(self):
        old = mv.Version(3, 30)
        for ctx in (self.member, self.admin):
            self.assertEqual({}, filters.requested(ctx, filters.VOLUME, {"colour": "red"}, old))
            self.refused(ctx, filters.VOLUME, "colour", mv.Version(3, 31))

    def test_parts_of_values_match_since_3_34(self):
        self.taken(self.admin, filters.VOLUME, "name~", mv.Version(3, 34))
        self.refused(self.admin, filters.VOLUME, "name~", mv.Version(3, 33))


class FileTest(Case):
    def test_without_one_the_usual_ones_hold(self):
        self.assertEqual(filters.VOLUME.default, filters.for_members(filters.VOLUME))

    def test_it_says_what_is_for_all(self):
        self.say({"volume": ["host", "name~"], "attachment": []})
        self.assertEqual(("host", "name~"), filters.for_members(filters.VOLUME))
        for name in ("host", "name~", "name"):
            self.taken(self.member, filters.VOLUME, name)
        self.refused(self.member, filters.VOLUME, "status")
        self.taken(self.admin, filters.VOLUME, "status")

    def test_the_sample_says_what_holds_without_one(self):
        sample = Path(attachd.__file__).parents[1] / "etc" / "attachd" / "resource_filters.json"
        if not sample.is_file():
            self.skipTest(f"The sample is not here: {sample}")
        expected = {name: each.default for name, each in filters.RESOURCES.items()}
        self.assertEqual(expected, filters.read(sample))

    def test_a_list_that_it_does_not_name_is_not_filtered(self):
        self.say({"volume": ["name"]})
        self.assertEqual((), filters.for_members(filters.TYPE))
        self.refused(self.member, filters.TYPE, "extra_specs")

    def test_what_no_list_knows_is_left_out_and_said(self):
        self.say({"volume": ["name", "colour", "name"], "backup": ["name"]})
        with self.assertLogs("attachd.api.filters", "WARNING") as logs:
            self.assertEqual(("name",), filters.for_members(filters.VOLUME))
        self.assertIn("volume has no filters colour", logs.output[0])

    def test_a_useless_one_is_the_operators_mistake(self):
        for text in ("", "[]", '{"volume": "name"}', '{"volume": [1]}', '{"volume": ["a b"]}'):
            self.say(text)
            with self.assertRaisesRegex(exception.ConfigurationError, "filters.json"):
                filters.load()

    def test_one_that_is_not_there_is_the_operators_mistake(self):
        override(self, "resource_query_filters_file", "/nonexistent/file", group="api")
        with self.assertRaisesRegex(exception.ConfigurationError, "/nonexistent/file"):
            filters.load()


class ToldTest(unittest.TestCase):
    def test_clients_are_told_of_all_filters(self):
        for resource in filters.RESOURCES.values():
            self.assertEqual(resource.known, resource.parameters.keys())
        self.assertIn("has this in it", filters.VOLUME.parameters["name~"]["description"])
        self.assertIn("name is this", filters.VOLUME.parameters["name"]["description"])


class TimesTest(unittest.TestCase):
    def test_each_is_an_operator_and_a_moment_in_utc(self):
        (after, until) = filters.compare_times("a", "gt:2026-01-31T12:00:00+01:00,lte:2026-02-01")
        self.assertEqual(
            ("a", "gt", datetime.datetime.fromisoformat("2026-01-31T11:00:00")), after
        )
        self.assertEqual(("a", "lte", datetime.datetime.fromisoformat("2026-02-01")), until)

    def test_anything_else_is_refused_by_the_name_of_the_filter(self):
        many = ",".join(["gt:2026-01-01"] * 101)
        for text in ("", "gt", "gt:", "2026-01-01", "about:2026-01-01", "gt:2026-13-01", many):
            with (
                self.subTest(text[:30]),
                self.assertRaisesRegex(exception.InvalidInput, "attribute since"),
            ):
                filters.compare_times("since", text)

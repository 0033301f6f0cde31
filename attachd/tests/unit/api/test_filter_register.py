# SPDX-License-Identifier: Apache-2.0
"""Tests of the filters of lists, and of the operator's file."""

import datetime
import json
from pathlib import Path
import unittest

import attachd
from attachd import exception
from attachd.api import filter_register
from attachd.api import microversions as mv
from attachd.tests.fixtures import api_context, lifetime
from attachd.tests.fixtures.conf_fixture import override


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.member, self.admin = (
            api_context.make_context(),
            api_context.make_context(*api_context.ADMIN),
        )
        filter_register.reset()
        self.addCleanup(filter_register.reset)

    def say(self, text):
        """Configure an operator's file with this content."""
        path = lifetime.temp_dir(self) / "filters.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        override(self, "resource_query_filters_file", str(path), group="api")
        filter_register.reset()

    def refused(self, ctx, resource, name, version=mv.LATEST):
        with self.assertRaisesRegex(exception.BadRequest, f"Invalid filters {name} are"):
            filter_register.requested(ctx, resource, {name: "x"}, version)

    def taken(self, ctx, resource, name, version=mv.LATEST):
        found = filter_register.requested(ctx, resource, {name: "x", "limit": "1"}, version)
        self.assertEqual({name: "x"}, found)


class RegisterTest(Case):
    def test_filter_names_are_unique(self):
        for resource in filter_register.RESOURCES.values():
            self.assertEqual(
                len(resource.known), len(resource.default + resource.admin_only), resource.name
            )

    def test_default_filters_are_for_all_callers(self):
        for resource in filter_register.RESOURCES.values():
            for name in filter_register.for_members(resource):
                self.taken(self.member, resource, name)

    def test_admin_only_filters_are_for_administrators(self):
        for name in filter_register.ATTACHMENT.admin_only:
            self.taken(self.admin, filter_register.ATTACHMENT, name)
            self.refused(self.member, filter_register.ATTACHMENT, name)

    def test_pool_filters_are_the_same_for_administrators(self):
        self.refused(self.admin, filter_register.POOL, "size")

    def test_unknown_filter_is_ignored_before_3_31(self):
        old = mv.Version(3, 30)
        for ctx in (self.member, self.admin):
            self.assertEqual(
                {}, filter_register.requested(ctx, filter_register.VOLUME, {"colour": "red"}, old)
            )
            self.refused(ctx, filter_register.VOLUME, "colour", mv.Version(3, 31))

    def test_like_filter_works_since_3_34(self):
        self.taken(self.admin, filter_register.VOLUME, "name~", mv.Version(3, 34))
        self.refused(self.admin, filter_register.VOLUME, "name~", mv.Version(3, 33))


class FileTest(Case):
    def test_defaults_apply_without_file(self):
        self.assertEqual(
            filter_register.VOLUME.default, filter_register.for_members(filter_register.VOLUME)
        )

    def test_file_sets_filters_for_members(self):
        self.say({"volume": ["host", "name~"], "attachment": []})
        self.assertEqual(("host", "name~"), filter_register.for_members(filter_register.VOLUME))
        for name in ("host", "name~", "name"):
            self.taken(self.member, filter_register.VOLUME, name)
        self.refused(self.member, filter_register.VOLUME, "status")
        self.taken(self.admin, filter_register.VOLUME, "status")

    def test_sample_file_has_defaults(self):
        sample = Path(attachd.__file__).parents[1] / "etc" / "attachd" / "resource_filters.json"
        if not sample.is_file():
            self.skipTest(f"The sample is not here: {sample}")
        expected = {name: resource.default for name, resource in filter_register.RESOURCES.items()}
        self.assertEqual(expected, filter_register.read(sample))

    def test_unnamed_list_has_no_filters(self):
        self.say({"volume": ["name"]})
        self.assertEqual((), filter_register.for_members(filter_register.TYPE))
        self.refused(self.member, filter_register.TYPE, "extra_specs")

    def test_unknown_filter_in_file_is_ignored_with_warning(self):
        self.say({"volume": ["name", "colour", "name"], "backup": ["name"]})
        with self.assertLogs("attachd.api.filter_register", "WARNING") as logs:
            self.assertEqual(("name",), filter_register.for_members(filter_register.VOLUME))
        self.assertIn("volume has no filters colour", logs.output[0])

    def test_malformed_file_is_configuration_error(self):
        for text in ("", "[]", '{"volume": "name"}', '{"volume": [1]}', '{"volume": ["a b"]}'):
            self.say(text)
            with self.assertRaisesRegex(exception.ConfigurationError, "filters.json"):
                filter_register.load()

    def test_missing_file_is_configuration_error(self):
        override(self, "resource_query_filters_file", "/nonexistent/file", group="api")
        with self.assertRaisesRegex(exception.ConfigurationError, "/nonexistent/file"):
            filter_register.load()


class DocumentationTest(unittest.TestCase):
    def test_all_filters_are_documented(self):
        for resource in filter_register.RESOURCES.values():
            self.assertEqual(resource.known, resource.parameters.keys())
        self.assertIn("has this in it", filter_register.VOLUME.parameters["name~"]["description"])
        self.assertIn("name is this", filter_register.VOLUME.parameters["name"]["description"])


class TimesTest(unittest.TestCase):
    def test_times_have_operator_and_utc_moment(self):
        (after, until) = filter_register.compare_times(
            "a", "gt:2026-01-31T12:00:00+01:00,lte:2026-02-01"
        )
        self.assertEqual(
            ("a", "gt", datetime.datetime.fromisoformat("2026-01-31T11:00:00")), after
        )
        self.assertEqual(("a", "lte", datetime.datetime.fromisoformat("2026-02-01")), until)

    def test_invalid_time_names_filter(self):
        many = ",".join(["gt:2026-01-01"] * 101)
        for text in ("", "gt", "gt:", "2026-01-01", "about:2026-01-01", "gt:2026-13-01", many):
            with (
                self.subTest(text[:30]),
                self.assertRaisesRegex(exception.InvalidInput, "attribute since"),
            ):
                filter_register.compare_times("since", text)

# SPDX-License-Identifier: Apache-2.0
"""Tests of the filters of lists of volumes."""

import datetime

from attachd import exception
from attachd.api import filter_register
from attachd.api import microversions as mv
from attachd.api.volumes import filters
from attachd.db.engine.paging import Comparison
from attachd.db.volumes.volume_queries import Filters
from attachd.tests.fixtures import api_context, db_rows

OWN = {"project_id": db_rows.PROJECT}


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.member = api_context.make_context()
        self.admin = api_context.make_context(*api_context.ADMIN)

    def refused(self, ctx, query, version=mv.LATEST):
        with self.assertRaises(exception.BadRequest) as caught:
            filters.parse(ctx, query, version)
        return str(caught.exception)


class ProjectTest(Case):
    def test_list_is_limited_to_project_of_caller(self):
        for ctx in (self.member, self.admin):
            self.assertEqual(OWN, filters.parse(ctx, {}, mv.LATEST))

    def test_all_tenants_needs_admin(self):
        query = {"all_tenants": "1"}
        self.assertEqual({}, filters.parse(self.admin, query, mv.LATEST))
        self.assertEqual(OWN, filters.parse(self.member, query, mv.LATEST))

    def test_all_tenants_with_invalid_value_is_refused(self):
        query = {"all_tenants": "perhaps"}
        self.assertIn("all_tenants", self.refused(self.admin, query))
        self.assertEqual(OWN, filters.parse(self.member, query, mv.LATEST))

    def test_filter_by_other_project_without_all_tenants_matches_nothing(self):
        query = {"project_id": "x"}
        self.assertIsNone(filters.parse(self.admin, query, mv.LATEST))
        parsed = filters.parse(self.admin, {**query, "all_tenants": "True"}, mv.LATEST)
        self.assertEqual({"project_id": "x"}, parsed)

    def test_member_filter_by_project_is_refused_since_3_31(self):
        self.assertIn("project_id", self.refused(self.member, {"project_id": "x"}))
        self.assertEqual(OWN, filters.parse(self.member, {"project_id": "x"}, mv.BASE))


class KnownFiltersTest(Case):
    def test_unknown_filter_is_refused_since_3_31_and_ignored_before(self):
        query, before = {"colour": "red"}, mv.Version(3, 30)
        self.assertIn("colour", self.refused(self.member, query, mv.Version(3, 31)))
        self.assertEqual(OWN, filters.parse(self.member, query, before))

    def test_unknown_filter_of_admin_is_applied_or_refused_under_attachd_1_0(self):
        query, before = {"colour": "red"}, mv.Version(3, 30)
        for version in (before, mv.Version(3, 31), mv.LATEST):
            self.assertIsNone(filters.parse(self.admin, query, version))
        self.admin.attachd_version = mv.ATTACHD_1_0
        self.assertIsNone(filters.parse(self.admin, query, before))
        self.assertIn("colour", self.refused(self.admin, query))

    def test_later_filters_are_ignored_before_3_31(self):
        cases = {"created_at": "gt:x", "updated_at": "gt:x", "consumes_quota": "false"}
        for name, text in cases.items():
            for ctx in (self.member, self.admin):
                self.assertEqual(OWN, filters.parse(ctx, {name: text}, mv.Version(3, 30)), name)
        query = {"group_id": "g"}
        self.assertEqual(OWN, filters.parse(self.member, query, mv.Version(3, 9)))
        self.assertIsNone(filters.parse(self.member, query, mv.Version(3, 10)))

    def test_bootable_before_3_2_means_anything_but_false(self):
        for text, expected in (("false", False), ("FALSE", False), ("0", True), ("x", True)):
            parsed = filters.parse(self.member, {"bootable": text}, mv.Version(3, 1))
            self.assertEqual({**OWN, "bootable": expected}, parsed, text)
        self.assertIn("bootable", self.refused(self.member, {"bootable": "x"}, mv.Version(3, 2)))

    def test_like_filter_matches_substring_since_3_34(self):
        query = {"name~": "x"}
        parsed = filters.parse(self.admin, query, mv.Version(3, 34))
        self.assertEqual({**OWN, "like": {"name": "x"}}, parsed)
        self.assertIsNone(filters.parse(self.admin, query, mv.Version(3, 33)))
        self.refused(self.member, query)

    def test_every_registered_filter_is_known_to_database(self):
        sample = {
            "metadata": "{}",
            "glance_metadata": "{}",
            "created_at": "gt:2026-01-01",
            "updated_at": "gt:2026-01-01",
        }
        for name in sorted(filter_register.VOLUME.known):
            query = {name: sample.get(name, "1"), "all_tenants": "1"}
            parsed = filters.parse(self.admin, query, mv.LATEST) or {}
            self.assertLessEqual(parsed.keys(), Filters.__annotations__.keys(), name)

    def test_image_metadata_filter_since_3_4_and_for_admins_since_3_31(self):
        query = {"glance_metadata": "{'os_type': 'linux'}"}
        parsed = {**OWN, "image_metadata": {"os_type": "linux"}}
        for ctx in (self.member, self.admin):
            self.assertEqual(OWN, filters.parse(ctx, query, mv.Version(3, 3)))
            for minor in (4, 30):
                self.assertEqual(parsed, filters.parse(ctx, query, mv.Version(3, minor)))
        self.assertIn("glance_metadata", self.refused(self.member, query, mv.Version(3, 31)))
        self.assertEqual(parsed, filters.parse(self.admin, query, mv.LATEST))


class ValuesTest(Case):
    def parsed(self, **query):
        parsed = filters.parse(self.member, query, mv.LATEST)
        return None if parsed is None else {k: v for k, v in parsed.items() if k not in OWN}

    def test_plain_filters_are_passed_on(self):
        query = {"name": "n", "status": "available", "availability_zone": "z"}
        self.assertEqual(query, self.parsed(**query))

    def test_typed_filters_are_converted(self):
        self.assertEqual(
            {"size_gib": 5, "bootable": True, "metadata": {"a": "b"}},
            self.parsed(size="5", bootable="1", metadata="{'a': 'b'}"),
        )

    def test_filter_by_unsupported_field_matches_nothing(self):
        self.assertIsNone(self.parsed(migration_status="migrating"))
        self.assertIsNone(self.parsed(group_id="g"))
        self.assertIsNone(self.parsed(consumes_quota="false"))
        self.assertEqual({}, self.parsed(consumes_quota="true"))

    def test_time_filters_are_comparisons(self):
        moment = datetime.datetime.fromisoformat("2026-01-31T11:00:00")
        self.assertEqual(
            {
                "times": [
                    Comparison("created_at", "gt", moment),
                    Comparison("created_at", "lte", datetime.datetime.fromisoformat("2026-02-01")),
                ]
            },
            self.parsed(created_at="gt:2026-01-31T12:00:00+01:00,lte:2026-02-01"),
        )

    def test_invalid_filter_value_is_refused_by_name(self):
        wrong = {
            "size": ("x", "-1", "1" * 20, "1.5", "²"),
            "bootable": ("maybe", ""),
            "metadata": ("a=b", "{'a': 1}"),
            "created_at": ("2026-01-01", "about:2026-01-01", "gt:yesterday", "gt:", "gt"),
            "updated_at": ("gt:2026-13-01", "gt:0001-01-01T00:00:00+23:00"),
            "consumes_quota": ("perhaps",),
        }
        for name, values in wrong.items():
            for value in values:
                with self.subTest(name=name, value=value):
                    self.assertIn(f"attribute {name}", self.refused(self.member, {name: value}))

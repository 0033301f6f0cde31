# SPDX-License-Identifier: Apache-2.0
"""Tests of the filters of lists of snapshots."""

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.snapshots import filters
from attachd.tests.fixtures import api_context, db_rows

PROJECT = {"project_id": db_rows.PROJECT}


class FiltersTest(api_context.ApiContextCase):
    def parse(self, *roles, version=mv.LATEST, **query):
        return filters.parse(api_context.make_context(*roles), query, version)

    def test_filters_become_columns(self):
        self.assertEqual(
            {**PROJECT, "state": "error", "metadata": {"a": "b"}, "like": {"name": "x"}},
            self.parse(
                *api_context.ADMIN, status="error", metadata="{'a': 'b'}", **{"name~": "x"}
            ),
        )

    def test_member_uses_documented_filters_only(self):
        self.assertEqual({**PROJECT, "volume_id": "v"}, self.parse(volume_id="v"))
        with self.assertRaisesRegex(exception.BadRequest, "Invalid filters user_id"):
            self.parse(user_id="u")

    def test_metadata_is_ignored_before_its_version(self):
        self.assertEqual(PROJECT, self.parse(version=mv.Version(3, 21), metadata="{'a': 'b'}"))

    def test_administrator_lists_all_projects_or_one(self):
        admin = api_context.ADMIN
        self.assertEqual({}, self.parse(*admin, all_tenants="1"))
        self.assertEqual({"project_id": "b"}, self.parse(*admin, all_tenants="1", project_id="b"))
        self.assertIsNone(self.parse(*admin, project_id="b"))

    def test_filter_that_no_snapshot_passes_selects_none(self):
        self.assertIsNone(self.parse(consumes_quota="false"))
        self.assertIsNone(self.parse(*api_context.ADMIN, colour="red"))

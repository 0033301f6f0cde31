# SPDX-License-Identifier: Apache-2.0
"""Tests of loading snapshots."""

from attachd import exception
from attachd.api.snapshots import load, policy
from attachd.tests.fixtures import api_context, db_rows


class LoadTest(api_context.ApiContextCase):
    def test_snapshot_is_loaded_for_those_who_may(self):
        volume = db_rows.add_volume()["id"]
        own = db_rows.add_snapshot(volume)["id"]
        other = db_rows.add_snapshot(volume, project_id=api_context.OTHER_PROJECT)["id"]
        member, reader = api_context.make_context(), api_context.make_context("reader")
        admin = api_context.make_context(*api_context.ADMIN)
        self.assertEqual(own, load.get(member, own, policy.DELETE)["id"])
        self.assertEqual(other, load.get(admin, other, policy.DELETE)["id"])
        with self.assertRaises(exception.SnapshotNotFound):
            load.get(member, other, policy.GET)
        with self.assertRaises(exception.Forbidden):
            load.get(reader, own, policy.DELETE)

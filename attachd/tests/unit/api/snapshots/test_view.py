# SPDX-License-Identifier: Apache-2.0
"""Tests of snapshots as answers show them."""

from attachd.api import microversions as mv
from attachd.api.snapshots import view
from attachd.db.volumes import snapshot_store
from attachd.tests.fixtures import api_context, db_rows

BASE = {
    *("id", "name", "description", "volume_id", "status", "size", "created_at", "updated_at"),
    "metadata",
}
EXTENDED = {f"os-extended-snapshot-attributes:{name}" for name in ("project_id", "progress")}


class ViewTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        added = db_rows.add_snapshot(db_rows.add_volume()["id"], progress=40)["id"]
        self.row = snapshot_store.get(added, None)

    def shown(self, minor, *roles):
        ctx = api_context.make_context(*roles)
        version = mv.Version(3, minor)
        return view.detail(self.row, view.Viewer.from_context(ctx, version))

    def test_fields_come_with_their_versions(self):
        for minor, added in (
            (0, set()),
            (14, {"group_snapshot_id"}),
            (41, {"group_snapshot_id", "user_id"}),
            (65, {"group_snapshot_id", "user_id", "consumes_quota"}),
        ):
            self.assertEqual(BASE | EXTENDED | added, set(self.shown(minor)), minor)

    def test_extended_attributes_follow_policy(self):
        self.assertEqual("40%", self.shown(0)["os-extended-snapshot-attributes:progress"])
        self.assertEqual(BASE, set(self.shown(0, "guest")))
        self.assertEqual(BASE, set(view.summary(self.row)))

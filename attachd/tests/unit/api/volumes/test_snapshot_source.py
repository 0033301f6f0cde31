# SPDX-License-Identifier: Apache-2.0
"""Tests of the snapshot of a new volume."""

from attachd import exception
from attachd.api.volumes import create_params, snapshot_source
from attachd.tests.fixtures import api_context, db_rows

UNKNOWN = "11111111-2222-4333-8444-555555555555"


class SnapshotSourceTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("here@shelf")
        self.ctx = api_context.make_context()
        self.gold = api_context.add_type("gold")["id"]
        self.volume = db_rows.add_volume(
            host="here@shelf#p",
            size_gib=5,
            availability_zone="nova",
        )["id"]

    def requested(self, snapshot_id, **more):
        return snapshot_source.requested_snapshot(self.ctx, {"snapshot_id": snapshot_id, **more})

    def test_volume_takes_size_type_and_backend_of_snapshot(self):
        api_context.report_backend("there@shelf")
        columns = {"size_gib": 3, "bootable": True, "volume_type_id": self.gold}
        snapshot_id = db_rows.add_snapshot(self.volume, **columns)["id"]
        values = create_params.build(self.ctx, {"snapshot_id": snapshot_id})
        self.assertEqual(
            (snapshot_id, None, 3, self.gold, True, "here@shelf"),
            (
                *(values["snapshot_id"], values["source_volid"], values["size_gib"]),
                *(values["volume_type_id"], values["bootable"], values["host"].partition("#")[0]),
            ),
        )
        for wrong, text in (
            ({"size": 2}, "at least that of snapshot .* 3 GiB"),
            ({"availability_zone": "far"}, "must be that of snapshot"),
        ):
            with self.assertRaisesRegex(exception.InvalidInput, text):
                create_params.build(self.ctx, {"snapshot_id": snapshot_id, **wrong})

    def test_snapshot_has_to_be_available_and_the_only_source(self):
        for state in ("creating", "error", "deleting"):
            snapshot_id = db_rows.add_snapshot(self.volume, state)["id"]
            with self.assertRaisesRegex(exception.InvalidSnapshot, f"currently {state}"):
                self.requested(snapshot_id)
        with self.assertRaises(exception.SnapshotNotFound):
            self.requested(UNKNOWN)
        usable = db_rows.add_snapshot(self.volume)["id"]
        for other in ("source_volid", "imageRef", "image_id"):
            with self.assertRaisesRegex(exception.BadRequest, f"leave out snapshot_id or {other}"):
                self.requested(usable, **{other: UNKNOWN})
            with self.assertRaises(exception.SnapshotNotFound):
                self.requested(UNKNOWN, **{other: UNKNOWN})
        for nothing in (None, ""):
            self.assertIsNone(self.requested(nothing))

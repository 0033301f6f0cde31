# SPDX-License-Identifier: Apache-2.0
"""Notifications of snapshots."""

import datetime

from attachd import notifications
from attachd.conf import CONF
from attachd.db.volumes import snapshot_store
from attachd.tests.fixtures import api_context, captured_notifications, db_rows

KEYS = {
    "tenant_id", "user_id", "availability_zone", "volume_id", "volume_size", "snapshot_id",
    "display_name", "created_at", "status", "deleted", "metadata",
}  # fmt: skip
"""The keys of a payload, as in Cinder 29."""
BORN = datetime.datetime.fromisoformat("2026-01-31T12:00:00")


class PayloadTest(api_context.ApiContextCase):
    def test_payload_has_keys_of_cinder(self):
        captured = captured_notifications.use(self)
        volume = db_rows.add_volume(size_gib=2)["id"]
        added = db_rows.add_snapshot(volume, name="n", size_gib=2, created_at=BORN)["id"]
        row = snapshot_store.get(added, None)
        notifications.snapshot("create.end", row, "z", status="deleted")
        (message,) = captured.messages()
        self.assertEqual("snapshot.create.end", message["event_type"])
        self.assertEqual(f"snapshot.{CONF.host}", message["publisher_id"])
        payload = message["payload"]
        self.assertEqual(KEYS, set(payload))
        self.assertEqual(
            ("z", volume, 2, "n", "2026-01-31T12:00:00+00:00", "deleted", "{}"),
            tuple(
                payload[key]
                for key in (
                    *("availability_zone", "volume_id", "volume_size", "display_name"),
                    *("created_at", "status", "metadata"),
                )
            ),
        )

# SPDX-License-Identifier: Apache-2.0
"""Rows for operators: all kinds, inner states, and no secrets."""

import datetime

from attachd import exception
from attachd.db import inspect, models
from attachd.db.cluster import members
from attachd.db.inspect import AttachmentFilters
from attachd.states import AttachmentState
from attachd.tests.fixtures import databases, db_rows

HOUR = datetime.timedelta(hours=1)


class InspectTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(multiattach=True)["id"]
        self.now = models.now()
        old = self.now - 3 * HOUR
        self.old = self.add("attached", created_at=old, updated_at=self.now)
        self.stuck = self.add("connecting", created_at=self.now - 2 * HOUR, host="n2")
        self.hold = self.add("held")
        self.far = self.add("attached", host="elsewhere", agent="n2")

    def add(self, state, **values):
        return db_rows.add_attachment(self.volume, state, **values)["id"]

    def found(self, **wanted):
        return [row["id"] for row in inspect.list_attachments(AttachmentFilters(**wanted))]

    def test_list_with_filter_returns_matches_oldest_first(self):
        everything = [self.old, self.stuck, self.hold, self.far]
        for wanted, expected in (
            ({}, everything),
            ({"limit": 2}, everything[:2]),
            ({"host": "n2"}, [self.stuck, self.far]),
            ({"volume_id": self.volume}, everything),
            ({"volume_id": "v"}, []),
            ({"states": {AttachmentState.CONNECTING}}, [self.stuck]),
            ({"made_before": self.now - HOUR}, [self.old, self.stuck]),
            ({"changed_before": self.now - HOUR}, [self.stuck]),
        ):
            with self.subTest(wanted):
                self.assertEqual(expected, self.found(**wanted))

    def test_reads_contain_no_secret(self):
        found = inspect.get_attachment(self.old)
        self.assertFalse({"connector", "connection_info", "secret"} & found.keys())
        self.assertNotIn("secret", inspect.list_attachments(AttachmentFilters())[0])

    def test_get_of_missing_row_raises_not_found(self):
        with self.assertRaises(exception.AttachmentNotFound):
            inspect.get_attachment("a")
        with self.assertRaises(exception.VolumeNotFound):
            inspect.get_volume("v")

    def test_get_volume_by_name_finds_it_in_all_projects(self):
        volume = db_rows.add_volume(name="data", project_id="7" * 32)["id"]
        self.assertEqual(volume, inspect.get_volume("data")["id"])
        named_like_id = db_rows.add_volume(name=self.volume)["id"]
        self.assertEqual(self.volume, inspect.get_volume(self.volume)["id"])
        ids = ", ".join(sorted((volume, db_rows.add_volume(name="data")["id"])))
        with self.assertRaisesRegex(exception.BadRequest, f"2 volumes .* data: .*: {ids}"):
            inspect.get_volume("data")
        self.assertNotEqual(self.volume, named_like_id)

    def test_get_volume_names_lease_holder(self):
        self.assertIsNone(inspect.get_volume(self.volume)["lease_holder_name"])
        members.join("p", "storage-1:77")
        for holder, name in (("p", "storage-1:77"), ("dead", None)):
            db_rows.change_volume(self.volume, lease_holder=holder)
            self.assertEqual(name, inspect.get_volume(self.volume)["lease_holder_name"])
            self.assertEqual({holder: [self.volume]}, inspect.list_leases())

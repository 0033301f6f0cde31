# SPDX-License-Identifier: Apache-2.0
"""Reads of an audit, and the status that it repairs."""

import datetime
from unittest import mock
import uuid

from attachd.db import audit, models
from attachd.db.cluster import members
from attachd.db.volumes import volume_queries
from attachd.states import VolumeStatus
from attachd.tests.fixtures import databases, db_rows


class AuditTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()
        self.attachment = db_rows.add_attachment(self.volume["id"], "attached")
        self.other = db_rows.add_volume(host="here@other#pool")
        db_rows.add_attachment(self.other["id"], "attached")

    def test_pages_contain_each_row_of_backend_once(self):
        second = db_rows.add_volume()
        attached = [self.attachment, *(db_rows.add_attachment(second["id"]) for _ in range(2))]
        with mock.patch.object(volume_queries, "PAGE", 1):
            pages = list(audit.list_pages("here@fake"))
        ids = sorted([self.volume["id"], second["id"]])
        self.assertEqual([{item} for item in ids], [set(page.volumes) for page in pages])
        for page in pages:
            expected = {row["id"] for row in attached if row["volume_id"] in page.volumes}
            self.assertEqual(expected, {row["id"] for row in page.attachments})

    def test_find_volume_finds_any_backend(self):
        self.assertEqual("here@other#pool", audit.find_volume(self.other["id"])["host"])
        self.assertIsNone(audit.find_volume(str(uuid.uuid4())))
        (row,) = audit.list_attachments_of_volume(self.volume["id"])
        self.assertEqual("5" * 32, row["secret"])

    def test_repair_status_keeps_correct_status(self):
        in_use = VolumeStatus("in-use", "attached")
        self.assertEqual((in_use, in_use), audit.get_statuses(self.volume["id"]))
        self.assertIsNone(audit.get_statuses(str(uuid.uuid4())))

    def test_repair_status_corrects_wrong_status(self):
        db_rows.change_volume(
            self.volume["id"], status="error", attach_status="detached", pending_detaches=3
        )
        stored, right = audit.get_statuses(self.volume["id"])
        self.assertEqual(VolumeStatus("error", "detached"), stored)
        self.assertEqual("attached", right.attach_status)
        audit.repair_status(self.volume["id"])
        self.assertEqual((right, right), audit.get_statuses(self.volume["id"]))
        self.assertEqual(1, db_rows.get_volume(self.volume["id"])["pending_detaches"])
        audit.repair_status(str(uuid.uuid4()))

    def test_list_server_attachments_excludes_agents_and_those_without_server(self):
        server, other = (str(uuid.uuid4()) for _ in range(2))
        row = db_rows.add_attachment(self.volume["id"], "attached", instance_uuid=server)
        db_rows.add_attachment(self.volume["id"], "attached", instance_uuid=server, agent="h")
        others = db_rows.add_attachment(self.other["id"], instance_uuid=other)
        found = audit.list_server_attachments()
        self.assertEqual({row["id"], others["id"]}, {item["id"] for item in found})
        (found,) = audit.list_server_attachments(server)
        self.assertEqual((row["id"], "here@fake#pool"), (found["id"], found["volume_host"]))
        self.assertNotIn("secret", found)
        self.assertEqual(found, audit.find_server_attachment(row["id"]))
        self.assertIsNone(audit.find_server_attachment(other))

    def test_list_living_ids_returns_members(self):
        attachment = str(uuid.uuid4())
        self.assertNotIn(attachment, audit.list_living_ids())
        members.join(attachment, "here:1")
        self.assertIn(attachment, audit.list_living_ids())

    def test_seconds_unchanged_counts_from_last_change(self):
        now = self.enterContext(mock.patch.object(models, "now", return_value=models.now()))
        hour_ago = now() - datetime.timedelta(hours=1)
        for row in (
            {"created_at": hour_ago, "updated_at": None},
            {"created_at": None, "updated_at": hour_ago},
        ):
            self.assertEqual(3600, audit.seconds_unchanged(row))

# SPDX-License-Identifier: Apache-2.0
"""Devices that only the reports of hosts have."""

from unittest import mock

from attachd import exception
from attachd.db import host_fences
from attachd.db.agents import agent_store, orphan_devices, restored_database
from attachd.db.attachments import attachment_store
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows, fake_agent

GONE = "11111111-2222-4333-8444-555555555555"


class OrphanDevicesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()["id"]
        fake_agent.report_agent("node-1")

    def report(self, attachment_id, path="/dev/sdb", volume=None, host="node-2"):
        device = {"attachment_id": attachment_id, "volume_id": volume or self.volume}
        fake_agent.report_agent(host, devices=[{**device, "path": path, "size_bytes": 1}])
        restored_database.begin(3600)

    def find_orphan(self, host="node-1"):
        return orphan_devices.find_orphan(self.volume, host)

    def test_find_orphan_without_row_returns_device(self):
        self.assertIsNone(self.find_orphan())
        self.report(GONE)
        self.assertEqual(("node-2", GONE, "/dev/sdb"), self.find_orphan())

    def test_orphan_device_on_other_host_raises_conflict(self):
        self.report(GONE)
        orphan_devices.check_nowhere_else(self.volume, "node-2")
        orphan_devices.check_nowhere_else("another", "node-1")
        with self.assertRaisesRegex(
            exception.Conflict, "node-2 .*/dev/sdb.*end what uses it.*restored --end node-2"
        ):
            orphan_devices.check_nowhere_else(self.volume, "node-1")

    def test_find_orphan_at_own_host_or_of_other_volume_returns_none(self):
        for said in ({"host": "node-1"}, {"path": None}, {"volume": GONE}):
            self.report(GONE, **said)
            self.assertIsNone(self.find_orphan())

    def test_find_orphan_in_report_that_is_not_believed_returns_none(self):
        self.report(GONE)
        restored_database.end(["node-2"])
        self.assertIsNone(self.find_orphan())
        restored_database.begin(-1)
        self.assertIsNone(self.find_orphan())

    def test_find_orphan_at_fenced_host_returns_none(self):
        self.report(GONE)
        host_fences.fence("NODE-2", "dead", None)
        self.assertIsNone(self.find_orphan())

    def test_find_orphan_with_row_returns_none(self):
        attachment_id = db_rows.add_attachment(self.volume, "attached", agent="node-2")["id"]
        self.report(attachment_id)
        self.assertIsNone(self.find_orphan())

    def test_find_orphan_of_recently_deleted_attachment_returns_none(self):
        attachment_id = db_rows.add_attachment(self.volume, "reserved")["id"]
        self.report(attachment_id)
        attachment_store.transition(attachment_id, self.volume, Event.CANCEL)
        self.assertEqual([], db_rows.list_attachments())
        self.assertIsNone(self.find_orphan())

    def test_find_orphan_reads_no_report_without_orphans(self):
        device = {"attachment_id": GONE, "volume_id": self.volume, "path": "/dev/sdb"}
        agent_store.create("node-2", fake_agent.KEY)
        agent_store.record_report("node-2", {"devices": [device]}, assigned={GONE})
        restored_database.begin(3600)
        with mock.patch.object(orphan_devices, "_devices_of_volume") as read:
            self.assertIsNone(self.find_orphan())
        read.assert_not_called()

    def test_find_orphan_in_report_older_than_events_returns_none(self):
        self.report(GONE)
        fake_agent.expire_heartbeat("node-2", 3600)
        self.assertIsNotNone(self.find_orphan())
        fake_agent.expire_heartbeat("node-2", 8 * 24 * 3600)
        self.assertIsNone(self.find_orphan())

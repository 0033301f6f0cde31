# SPDX-License-Identifier: Apache-2.0
"""What people are shown of one object."""

import unittest

from attachd.cli import descriptions

MOMENT = "2026-01-01T00:00:00.000000"
AGENT = {
    "host": "h",
    "state": "down",
    "last_seen": MOMENT,
    "connector_type": "kernel",
    "version": "1.0",
    "error": None,
    "connector": {"host": "h", "initiator": "iqn.x", "auth_password": "geheim"},
    "devices": [
        {"path": "/dev/sdb", "size_bytes": 3 * 2**29, "volume_id": "v", "attachment_id": "a"}
    ],
}
LEASE = {
    "renewed_at": MOMENT,
    "seconds": None,
    "expires_at": None,
    "lost_at": None,
    "lost_action": None,
}


class AgentTest(unittest.TestCase):
    def lease(self, **values):
        return descriptions.agent({**AGENT, "lease": {**LEASE, **values}})["Lease"]

    def test_agent_is_described_without_secrets(self):
        found = descriptions.agent(AGENT)
        self.assertRegex(found["State"], r"down, last report 2026-01-01 00:00:00 UTC \(\d+d ago\)")
        self.assertEqual(
            ("/dev/sdb", "1.5"), (found["Devices"][0]["Device"], found["Devices"][0]["GiB"])
        )
        self.assertNotIn("geheim", str(found))
        self.assertEqual(
            "new, has never reported",
            descriptions.agent({**AGENT, "state": "new", "last_seen": None})["State"],
        )

    def test_lease_says_how_it_ends(self):
        self.assertEqual("without end", self.lease())
        until = self.lease(seconds=30, expires_at="2026-01-01T00:00:30.000000")
        self.assertEqual("30 s, until 2026-01-01 00:00:30 UTC", until)
        lost = self.lease(lost_at=MOMENT, lost_action="fence")
        self.assertRegex(lost, r"lost since 2026-01-01 00:00:00 UTC .*, and it was fenced\Z")
        self.assertEqual("", descriptions.agent({**AGENT, "lease": None})["Lease"])


class AttachmentTest(unittest.TestCase):
    def describe(self, **values):
        return descriptions.attachment(
            {"id": "a", "volume_id": "v", "status": "reserved", **values}
        )

    def test_attachment_of_another_service_has_few_fields(self):
        found = {name: value for name, value in self.describe().items() if value}
        self.assertEqual({"Attachment": "a", "Status": "reserved", "Volume": "v"}, found)

    def test_attachment_names_agent_and_end(self):
        found = self.describe(agent="h", status="deleted", detached_at=MOMENT, mountpoint="na")
        self.assertEqual("h, by its agent", found["Host"])
        self.assertRegex(found["Status"], r"deleted 2026-01-01 00:00:00 UTC \(")
        self.assertIsNone(found["Mountpoint"])

# SPDX-License-Identifier: Apache-2.0
"""How an agent looks."""

import unittest

from attachd.api.agents import view

DEVICE = {"attachment_id": "a1", "volume_id": "v1", "path": "/dev/sdb", "size_bytes": 2**30}
ROW = {
    "host": "node-1",
    "seen_at": "a moment",
    "alive": True,
    "connector_type": "kernel",
    "version": "1.0",
    "error": None,
    "connector": {"host": "node-1", "initiator": "iqn.x", "multipath": False, "found": "secret"},
    "devices": [{**DEVICE, "sessions": ["secret"]}],
    "created_at": "long ago",
}


class AgentTest(unittest.TestCase):
    def test_it_tells_what_it_reported_and_no_secrets(self):
        self.assertEqual(
            {
                "host": "node-1",
                "state": "up",
                "last_seen": "a moment",
                "connector_type": "kernel",
                "version": "1.0",
                "error": None,
                "connector": {"host": "node-1", "initiator": "iqn.x", "multipath": False},
                "devices": [{**DEVICE, "mountpoint": None}],
            },
            view.agent(ROW),
        )

    def test_one_that_does_not_report_is_down_or_new(self):
        self.assertEqual("down", view.agent({**ROW, "alive": False})["state"])
        nothing = dict.fromkeys(ROW, None)
        shown = view.agent({**nothing, "host": "node-1", "alive": False})
        self.assertEqual(("new", None, []), (shown["state"], shown["connector"], shown["devices"]))

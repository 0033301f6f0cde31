# SPDX-License-Identifier: Apache-2.0
"""The commands for several volumes of a host."""

import json

from attachd.tests.unit.cli.programs import Case

ATTACHED = {
    "volume_id": "id of v1",
    "attachment_id": "a1",
    "status": "attached",
    "device": "/dev/loop1",
    "error": None,
}
FAILED = {
    "volume_id": "id of v2",
    "attachment_id": None,
    "status": None,
    "device": None,
    "error": {"code": 400, "message": "It is held.", "reason_code": "attachd.held"},
}


class HostVolumesTest(Case):
    def test_host_attach_sends_one_request_and_shows_each_result(self):
        self.cloud.results = [ATTACHED]
        words = ("--mode", "ro", "--all-or-none", "-f", "json")
        (row,) = json.loads(self.run_it("host-attach", "h", "v1", "v2", *words))
        self.assertEqual(
            ("id of v1", "a1", "/dev/loop1"),
            (row["Volume ID"], row["Attachment ID"], row["Device"]),
        )
        ((method, url, request),) = self.cloud.asked
        self.assertEqual(("POST", "/attachments/action"), (method, url))
        self.assertTrue(request["headers"]["Idempotency-Key"])
        volumes = [{"volume_uuid": f"id of {name}", "mode": "ro"} for name in ("v1", "v2")]
        body = {"attach_set": {"host": "h", "volumes": volumes, "atomic": True}}
        self.assertEqual(body, request["json"])

    def test_host_attach_with_failed_volume_exits_with_1(self):
        self.cloud.results = [ATTACHED, FAILED]
        printed = self.run_it("host-attach", "h", "v1", "v2", code=1)
        self.assertIn("id of v2: It is held.", printed)
        asked = self.cloud.asked[0][2]["json"]["attach_set"]
        self.assertEqual(
            (False, {"volume_uuid": "id of v1"}), (asked["atomic"], asked["volumes"][0])
        )

    def test_host_detach_finds_attachments_of_host(self):
        self.cloud.listed = [
            {"id": f"a{number}", "volume_id": f"id of v{number}"} for number in range(3)
        ]
        self.cloud.results = [ATTACHED]
        self.run_it("host-detach", "h", "v2", "v1")
        self.assertEqual("h", self.cloud.asked[0][2]["params"]["agent"])
        body = {"detach_set": {"attachments": ["a2", "a1"]}}
        self.assertEqual(body, self.cloud.asked[-1][2]["json"])

    def test_host_detach_of_volume_that_is_not_attached_detaches_none(self):
        self.cloud.listed = [{"id": "a1", "volume_id": "id of v1"}]
        self.run_it("host-detach", "h", "v1", "v2", code=1)
        self.assertIn("has not attached volume id of v2", self.said)
        self.assertEqual({"GET"}, {method for method, _url, _request in self.cloud.asked})

# SPDX-License-Identifier: Apache-2.0
"""The commands on fenced hosts."""

import json

from attachd.tests.unit.cli.programs import FENCED, HOST, Case


class HostsTest(Case):
    def test_host_fence_shows_results_and_fails_until_all_are_done(self):
        self.cloud.fenced = [{**FENCED, "result": "proved", "reason": None}]
        (row,) = json.loads(self.run_it("host-fence", "h", "--reason", "dead", "-f", "json"))
        self.assertEqual(("a1", "proved"), (row["Attachment ID"], row["Result"]))
        ((method, url, request),) = self.cloud.asked
        self.assertEqual(("POST", "/hosts/h/fence"), (method, url))
        self.assertEqual({"fence": {"reason": "dead"}}, request["json"])
        for result in ("pending", "failed"):
            self.cloud.fenced = [{**FENCED, "result": result, "reason": "It is away."}]
            printed = self.run_it("host-fence", "h", "--reason", "dead", code=1)
            self.assertIn("a1: It is away.", printed)

    def test_host_fence_needs_reason(self):
        self.run_it("host-fence", "h", code=2)

    def test_hosts_are_listed_and_shown(self):
        (row,) = json.loads(self.run_it("host-list", "-f", "json"))
        self.assertEqual(("h", "dead", ["a1"]), (row["Host"], row["Reason"], row["Attachments"]))
        self.assertEqual(HOST, json.loads(self.run_it("host-show", "h", "-f", "json")))

    def test_host_unfence_continues_after_unknown_host(self):
        self.cloud.missing = {"/hosts/h/unfence"}
        self.run_it("host-unfence", "h", "i", code=1)
        self.assertIn("h: ", self.said)
        self.assertEqual(
            ["/hosts/h/unfence", "/hosts/i/unfence"], [asked[1] for asked in self.cloud.asked]
        )

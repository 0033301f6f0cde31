# SPDX-License-Identifier: Apache-2.0
"""The commands on fenced and drained hosts."""

import json
from unittest import mock

from attachd.tests.unit.cli.programs import AGENT, FENCED, HOST, Case


def make_drain(*statuses):
    reasons = {"failed": "It is busy."}
    attachments = [
        {
            "attachment_id": f"a{number}",
            "volume_id": f"v{number}",
            "instance_uuid": None,
            "status": status,
            "reason": reasons.get(status),
        }
        for number, status in enumerate(statuses, 1)
    ]
    return {
        "drained_at": "2026-01-02T00:00:00.000000",
        "reason": "repair",
        "user_id": "u",
        "counts": {status: statuses.count(status) for status in statuses},
        "attachments": attachments,
    }


class HostsTest(Case):
    def test_host_fence_shows_results_and_fails_until_all_are_done(self):
        self.cloud.fenced = [{**FENCED, "result": "proved", "reason": None}]
        (row,) = json.loads(self.run_it("host-fence", "h", "--reason", "dead", "-f", "json"))
        self.assertEqual(("a1", "proved"), (row["Attachment ID"], row["Result"]))
        ((method, url, request),) = self.cloud.asked
        self.assertEqual(("POST", "/hosts/h/fence"), (method, url))
        self.assertEqual({"fence": {"reason": "dead", "lift": "manual"}}, request["json"])
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

    def test_host_drain_shows_statuses_and_fails_until_all_are_detached(self):
        self.cloud.drains = [make_drain("detached", "attached")]
        rows = json.loads(self.run_it("host-drain", "h", "--detach", "a1", "-f", "json"))
        self.assertEqual(
            [("a1", "detached"), ("a2", "attached")],
            [(row["Attachment ID"], row["Status"]) for row in rows],
        )
        ((method, url, request),) = self.cloud.asked
        self.assertEqual(("POST", "/hosts/h/drain"), (method, url))
        self.assertEqual({"drain": {"detach": ["a1"]}}, request["json"])
        for status in ("waiting", "detaching", "failed", "left"):
            self.cloud.drains = [make_drain(status)]
            printed = self.run_it("host-drain", "h", "--detach-all", "--reason", "repair", code=1)
            body = {"reason": "repair", "detach": "all"}
            self.assertEqual({"drain": body}, self.cloud.asked[-1][2]["json"])
        self.assertIn("left", printed)

    def test_host_drain_waits_until_nothing_is_under_way(self):
        self.cloud.drains = [make_drain("waiting"), make_drain("detaching"), make_drain("failed")]
        with mock.patch("attachd.cli.hosts.time.sleep") as sleep:
            printed = self.run_it("host-drain", "h", "--detach-all", "--wait", code=1)
        self.assertIn("a1: It is busy.", printed)
        self.assertEqual(2, sleep.call_count)
        asked = [(method, url) for method, url, _request in self.cloud.asked]
        self.assertEqual([("POST", "/hosts/h/drain"), *[("GET", "/hosts/h")] * 2], asked)

    def test_host_drain_does_not_wait_for_blocked_attachments(self):
        drain = make_drain("detaching")
        drain["attachments"][0]["reason"] = "The agent is down. Start it."
        self.cloud.drains = [drain]
        printed = self.run_it("host-drain", "h", "--detach-all", "--wait", code=1)
        self.assertIn("a1: The agent is down. Start it.", printed)

    def test_host_drain_waits_no_longer_than_asked(self):
        self.cloud.drains = [make_drain("detaching")] * 9
        with mock.patch("attachd.cli.hosts.time") as clock:
            clock.monotonic.side_effect = [0.0, 1.0, 2.5, 4.5]
            wait = ("--wait", "--within", "5")
            printed = self.run_it("host-drain", "h", "--detach-all", *wait, code=1)
        self.assertIn("detaching", printed)
        self.assertEqual((3, 2), (len(self.cloud.asked), clock.sleep.call_count))

    def test_host_drain_refuses_both_ways_to_detach(self):
        self.run_it("host-drain", "h", "--detach-all", "--detach", "a1", code=2)
        self.assertEqual([], self.cloud.asked)

    def test_host_that_another_administrator_resumes_is_shown_without_attachments(self):
        self.assertEqual([], json.loads(self.run_it("host-drain", "h", "-f", "json")))

    def test_list_shows_drain(self):
        self.cloud.drains = [make_drain()]
        (row,) = json.loads(self.run_it("host-list", "-f", "json"))
        self.assertEqual("2026-01-02T00:00:00.000000", row["Drained At"])

    def test_host_resume_continues_after_unknown_host(self):
        self.cloud.missing = {"/hosts/h/resume"}
        self.run_it("host-resume", "h", "i", code=1)
        self.assertIn("h: ", self.said)
        (_first, (_method, url, request)) = self.cloud.asked
        self.assertEqual(("/hosts/i/resume", {"resume": None}), (url, request["json"]))


_SINCE = r"since 2026-01-01 00:00:00 UTC \(\d+d ago\)"


class ShowTest(Case):
    """A host for people."""

    def test_host_is_shown_with_agent_lease_and_attachments(self):
        lease = {
            "renewed_at": "2026-01-01T00:00:00.000000",
            "seconds": 30,
            "expires_at": "2026-01-01T00:00:30.000000",
            "lost_at": None,
            "lost_action": None,
        }
        agent = {**AGENT, "lease": lease, "error": None, "state": "up"}
        attachment = {
            "id": "a1",
            "volume_id": "v1",
            "volume_name": "data",
            "status": "attached",
            "device": "/dev/sdb",
            "attached_at": "2026-01-01T00:00:00.000000",
        }
        host = {**HOST, "agent_state": "up", "initiators": ["iqn.x"], "lift": "auto"}
        body = self.cloud.body
        self.cloud.drains = [make_drain("waiting", "detached")]

        def answer(method, url, request):
            if url == "/attachments/detail":
                is_last = "marker" in request["params"] or "agent" in request["params"]
                return {"attachments": [] if is_last else [attachment]}
            if url.startswith("/agents"):
                return {"agent": agent}
            if url == "/hosts/h":
                return {"host": {**host, "drain": self.cloud.drains[0]}}
            return body(method, url, request)

        with mock.patch.object(self.cloud, "body", answer):
            text = self.run_it("host-show", "h")
        self.assertRegex(text, rf"(?m)^Fenced      {_SINCE}: dead\.")
        self.assertRegex(text, r"(?m)^Agent       up, last report 2026-01-01 00:00:00 UTC")
        self.assertIn("Lease       30 s, until 2026-01-01 00:00:30 UTC\n", text)
        self.assertIn("1 waiting, 1 detached", text)
        self.assertRegex(text, r"\| a1 +\| data +\| /dev/sdb +\| attached \|")
        self.assertIn("\nDrain\n", text)
        self.assertNotIn("None", text)

    def test_host_is_shown_to_users_who_may_not_see_more(self):
        self.cloud.missing = {"/attachments/detail", "/agents/h"}
        text = self.run_it("host-show", "h")
        self.assertRegex(text, r"\| a1 +\| unknown \|")
        self.assertIn("\nAgent    none\n", text)

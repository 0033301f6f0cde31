# SPDX-License-Identifier: Apache-2.0
"""Tests of fencing while the database or the message queue is away, and of wrong names of hosts.

Processes and servers are real; a proxy disconnects them.
"""

from concurrent import futures
import urllib.parse

import testtools

from attachd.tests.concurrency import run_at_once
from attachd.tests.fixtures import deployments
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

ATTACHD_1_1 = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}
DEAD = "compute-1"
DELAY = 3
"""Seconds for each call of the backend, so that there is time to disconnect a server."""
SETTINGS = f"[slow]\nfake_delay = {DELAY}\n"


class Case(testtools.TestCase):
    settings = ""

    def setUp(self):
        super().setUp()
        self.deployment = deployments.ProxiedDeployment(
            self, "mariadb", "slow", f"[slow]\nfake_delay = 0\n{self.settings}"
        )
        self.deployment.start()
        self.attachments = [self.attach() for _ in range(2)]

    def request(self, method, path, body=None):
        return self.deployment.api.request(method, path, body, headers=ATTACHD_1_1)

    def connect(self, host=DEAD):
        """Create an attachment, and connect it to a host; returns the answer and the id."""
        attachment = self.deployment.reserve(self.deployment.create_volume())
        return self.deployment.connect(attachment, host), attachment

    def attach(self):
        answer, attachment = self.connect()
        self.assertEqual(200, answer.status, answer)
        return attachment

    def fence(self, host=DEAD):
        name = urllib.parse.quote(host, safe="")
        return self.request("POST", f"/hosts/{name}/fence", {"fence": {"reason": "dead"}})

    def host(self):
        return self.request("GET", f"/hosts/{DEAD}").body["host"]

    def results(self, answer):
        self.assertEqual(200, answer.status, answer)
        items = answer.body["fence"]["attachments"]
        return {item["attachment_id"]: item["result"] for item in items}

    def proofs(self):
        """Return the results of the proofs that are stored."""
        found = {}
        for attachment in self.attachments:
            path = f"/attachments/{attachment}/timeline"
            events = self.request("GET", path).body["timeline"]
            found[attachment] = [item["proof"]["result"] for item in events if item.get("proof")]
        return found

    def assert_fenced_with_proof(self):
        """Check the end: each attachment was proved and deleted, and nothing can be attached."""
        wait_until(lambda: not self.host()["attachment_ids"])
        self.assertTrue(self.host()["fenced"])
        self.assertEqual({item: ["proved"] for item in self.attachments}, self.proofs())
        refused, _ = self.connect()
        self.assertEqual(409, refused.status, refused)
        self.assertIn(f"Host {DEAD} is fenced since", refused.message)


@full_only("outages")
class FenceOutageTest(Case):
    def test_fence_without_database_changes_nothing_and_can_be_repeated(self):
        proxy = self.deployment.database_proxy
        for away in (proxy.refuse, proxy.freeze):
            away()
            answer = self.fence()
            self.assertEqual(503, answer.status, answer)
            self.assertIn("The database does not answer. Try", answer.message)
            proxy.pass_on()
            wait_until(lambda: self.request("GET", f"/hosts/{DEAD}").status == 200)
            host = self.host()
            self.assertEqual((False, 2), (host["fenced"], len(host["attachment_ids"])))
        self.assertEqual(dict.fromkeys(self.attachments, "proved"), self.results(self.fence()))
        self.assert_fenced_with_proof()

    def test_fence_without_message_queue_is_finished_by_recovery(self):
        self.deployment.queue_proxy.refuse()
        self.check_fence_by_recovery()

    def test_fence_with_silent_message_queue_is_finished_by_recovery(self):
        self.deployment.queue_proxy.freeze()
        self.check_fence_by_recovery()

    def check_fence_by_recovery(self):
        results = self.results(self.fence())
        self.assertEqual(set(self.attachments), results.keys())
        # Managers find the rows by themselves, within or after the time of the request.
        self.assertLessEqual(set(results.values()), {"proved", "pending"})
        self.assertTrue(self.host()["fenced"])
        wait_until(lambda: not self.host()["attachment_ids"])
        self.deployment.queue_proxy.pass_on()
        self.assert_fenced_with_proof()


@full_only("outages")
class SlowBackendTest(Case):
    settings = SETTINGS

    def test_fence_that_loses_its_database_is_finished_later(self):
        with futures.ThreadPoolExecutor(1) as pool:
            fencing = pool.submit(self.fence)
            wait_until(lambda: self.host()["fenced"])
            self.deployment.database_proxy.refuse()
            answer = fencing.result()
        if answer.status == 200:
            self.assertLessEqual(set(self.results(answer).values()), {"pending", "failed"})
        else:
            self.assertEqual(503, answer.status, answer)
            self.assertIn("The database does not answer. Try", answer.message)
        self.deployment.database_proxy.pass_on()
        wait_until(lambda: self.request("GET", f"/hosts/{DEAD}").status == 200)
        wait_until(lambda: self.fence().status == 200)
        self.assert_fenced_with_proof()

    def test_two_fences_at_the_same_moment_prove_all_once(self):
        answers = run_at_once(self.fence, self.fence)
        for answer in answers:
            results = self.results(answer)
            self.assertEqual({"proved"}, {*results.values(), "proved"})
            host = answer.body["fence"]["host"]
            self.assertEqual(
                (True, 1, []), (host["fenced"], host["generation"], host["attachment_ids"])
            )
        self.assertEqual(
            set(self.attachments), {item for answer in answers for item in self.results(answer)}
        )
        self.assertEqual({}, self.results(self.fence()))
        self.assert_fenced_with_proof()


@full_only("outages")
class WrongNameTest(Case):
    def test_wrong_name_is_refused_and_fences_nothing(self):
        for name in ("compute", "compute-_", "%", "x" * 300):
            answer = self.fence(name)
            self.assertIn(answer.status, {400, 404}, (name, answer))
            self.assertEqual([], self.request("GET", "/hosts").body["hosts"], name)
        host = self.host()
        self.assertEqual((False, 2), (host["fenced"], len(host["attachment_ids"])))

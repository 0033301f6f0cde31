# SPDX-License-Identifier: Apache-2.0
"""Tests of sets of attachments whose API, manager or agents are killed in the middle."""

from concurrent import futures
import contextlib
import time

import requests

from attachd.tests import wait
from attachd.tests.fixtures import agent_deployment
from attachd.tests.functional.attachment_set_case import VERSION, SetCase
from attachd.tests.selection import full_only

HOSTS = 5
VOLUMES = 3
STAGGER = 0.12
"""Seconds from the request of one host to that of the next: a kill interrupts each elsewhere."""
COMPLETE = ["attached"] * VOLUMES


@full_only("crash")
class SetKillsTest(SetCase):
    """Each host has a set of its own, whose requests begin one after the other."""

    def setUp(self):
        super().setUp()
        self.sets = {self.start_host(): self.create_volumes() for _ in range(HOSTS)}
        self.volumes += [volume for volumes in self.sets.values() for volume in volumes]
        self.own_api = contextlib.ExitStack()
        self.addCleanup(self.own_api.close)
        self.own_api.enter_context(self.deployment.another_api(self))

    def start_host(self):
        host = agent_deployment.AgentHost(self.deployment, self)
        host.start()
        return host

    def create_volumes(self):
        return [self.deployment.create_volume() for _ in range(VOLUMES)]

    def kill_api(self):
        """Kill the API of this test; the next requests are for that of the deployment."""
        self.own_api.close()

    def kill_manager(self):
        self.deployment.manager.kill()
        self.deployment.manager = self.deployment.start_manager()

    def kill_agents(self):
        for host in self.sets:
            host.agents[-1].kill()
            host.start()

    def attach_all(self, kill=None, *, atomic):
        """Request all sets, and kill in the middle; return the answers, None: there was none."""

        def request(number, host):
            time.sleep(STAGGER * number)  # The moment of the kill is another one for each.
            with contextlib.suppress(requests.ConnectionError):
                key = {"Idempotency-Key": f'"{host.name}"'}
                return self.attach_set(self.sets[host], host=host, atomic=atomic, **key)

        return self.run_all(request, kill)

    def run_all(self, request, kill):
        """Run the requests of all hosts; kill when that of the second one has an effect."""
        second = [*self.sets][1]
        before = len(self.attached(second))
        with futures.ThreadPoolExecutor(HOSTS) as pool:
            started = [pool.submit(request, *item) for item in enumerate(self.sets)]
            if kill is not None:
                wait.wait_until(lambda: len(self.attached(second)) != before)
                kill()
            return [item.result() for item in started]

    def attached(self, host):
        """Return the attachments of a set."""
        path = f"/attachments/detail?agent={host.name}"
        return self.deployment.request("GET", path, **VERSION).json()["attachments"]

    def statuses(self, host):
        return [item["status"] for item in self.attached(host)]

    def wait_until_whole(self):
        """Wait until all sets are complete or undone; return the hosts of the complete ones."""
        wait.wait_until(
            lambda: not self.deployment.read_rows()["attachment_sets"],
            lambda: {host.name: self.statuses(host) for host in self.sets},
        )
        found = {host: self.statuses(host) for host in self.sets}
        for host, statuses in found.items():
            self.assertIn(statuses, (COMPLETE, []), host.name)
        return [host for host, statuses in found.items() if statuses]

    def check_answers(self, answers, complete):
        """Check that a set is attached if that was the answer, and is not if it was an error."""
        for host, answer in zip(self.sets, answers, strict=True):
            if answer is not None:
                self.assertEqual(host in complete, answer.status_code == 200, answer.text)

    def detach_all(self, kill=None):
        def request(number, host):
            time.sleep(STAGGER * number if kill else 0)  # As in attach_all().
            results = [{"attachment_id": item["id"]} for item in self.attached(host)]
            with contextlib.suppress(requests.ConnectionError):
                return results and self.detach_set(results)

        self.run_all(request, kill)

    def assert_all_removed(self):
        super().assert_all_removed()
        for host in self.sets:
            wait.wait_until(lambda host=host: not host.entries(), host.entries)
            self.assertEqual(([], []), (host.loops(), host.daemons()))

    def test_killed_api_leaves_each_atomic_set_complete_or_undone(self):
        answers = self.attach_all(self.kill_api, atomic=True)
        self.assertIn(None, answers)
        self.assertTrue(self.deployment.read_rows()["attachment_sets"])
        self.check_answers(answers, self.wait_until_whole())
        self.detach_all()
        self.assert_all_removed()

    def test_atomic_set_is_continued_by_repeated_request_after_killed_api(self):
        self.assertIn(None, self.attach_all(self.kill_api, atomic=True))
        answers = self.attach_all(atomic=True)
        self.assertEqual({200}, {answer.status_code for answer in answers})
        self.assertEqual(list(self.sets), self.wait_until_whole())
        self.detach_all()
        self.assert_all_removed()

    def test_each_volume_is_attached_by_repeated_request_after_killed_api(self):
        self.assertIn(None, self.attach_all(self.kill_api, atomic=False))
        for host, answer in zip(self.sets, self.attach_all(atomic=False), strict=True):
            results = self.results(answer)
            self.assertEqual(COMPLETE, [item["status"] for item in results], results)
            self.assertEqual(COMPLETE, self.statuses(host))
        self.detach_all()
        self.assert_all_removed()

    def test_killed_manager_leaves_each_atomic_set_complete_or_undone(self):
        answers = self.attach_all(self.kill_manager, atomic=True)
        self.assertNotIn(None, answers)
        self.check_answers(answers, self.wait_until_whole())
        self.detach_all(self.kill_manager)
        self.detach_all()
        self.assert_all_removed()

    def test_killed_agents_leave_each_atomic_set_complete(self):
        answers = self.attach_all(self.kill_agents, atomic=True)
        self.assertEqual({200}, {answer.status_code for answer in answers})
        self.assertEqual(list(self.sets), self.wait_until_whole())
        self.detach_all(self.kill_agents)
        self.detach_all()
        self.assert_all_removed()

    def test_killed_api_leaves_detach_that_is_finished(self):
        self.attach_all(atomic=False)
        self.detach_all(self.kill_api)
        self.detach_all()
        self.assert_all_removed()

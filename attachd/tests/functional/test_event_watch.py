# SPDX-License-Identifier: Apache-2.0
"""Tests of watching events in order while clients attach and the API restarts.

The managers, RabbitMQ and the databases are real.  ATTACHD_TEST_CYCLES=1000 runs a hundred
clients, on PostgreSQL as well.  ATTACHD_TEST_WATCHERS=N starts N watchers and prints their cost.
"""

import contextlib
import os
from pathlib import Path
import signal
import sys

import requests
import testtools

from attachd.tests.fixtures import deployments, http_client
from attachd.tests.functional import event_watchers
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

ASKED = os.environ.get("ATTACHD_TEST_CYCLES")
CYCLES = int(ASKED or 32)
CLIENTS = max(4, min(100, CYCLES // 10))
LISTENERS = int(os.environ.get("ATTACHD_TEST_WATCHERS", "0"))
RESTARTS = 2
LIFE = ["reserved", "connected", "attached", "deleted"]

OPTIONS = """
[fake]
driver = fake
[events]
max_watchers = {watchers}
max_watchers_per_project = {watchers}
max_watchers_per_user = {watchers}
longest_watch = 7
[api]
retry_after = 1
"""

SHARES = """
[fake]
driver = fake
[events]
max_watchers = 8
max_watchers_per_project = 4
max_watchers_per_user = 3
"""


@full_only("deployments")
class Case(testtools.TestCase):
    kind = "mariadb"

    def setUp(self):
        super().setUp()
        self.deployment = deployments.Deployment(self, self.kind, backend="fake")
        self.deployment.configure(OPTIONS.format(watchers=LISTENERS + 6))
        self.deployment.start_manager().show_in_failures(self)
        self.start_api()
        self.deployment.wait_until_served()
        self.api = http_client.Client(self.url() + "/v3")

    def start_api(self):
        self.deployment.start_uwsgi().show_in_failures(self)

    def url(self):
        return self.deployment.url

    def place(self):
        answer = requests.get(
            f"{self.url()}/v3/events", headers=event_watchers.HEADERS, timeout=TIMEOUT
        )
        return answer.json()["revision"]

    def all_events(self, since):
        """Read all that there is behind a place, page by page."""
        found = []
        while True:
            query = {"since": since, "limit": 100}
            answer = requests.get(
                f"{self.url()}/v3/events",
                params=query,
                headers=event_watchers.HEADERS,
                timeout=TIMEOUT,
            ).json()
            found += answer["events"]
            if not answer["events"]:
                return found
            since = answer["revision"]

    def lives(self, found):
        """Return what became of each attachment, by its id."""
        lives = {}
        for event in found:
            lives.setdefault(event["attachment_id"], []).append(event["type"])
        return lives


class WatchingOnMariadbTest(Case):
    def test_event_watch_through_restarts_receives_each_event_once_in_order(self):
        since = self.place()
        volumes = [self.api.create_volume() for _ in range(CLIENTS)]
        clients = [
            event_watchers.Attacher(self.url, volume, CYCLES // CLIENTS) for volume in volumes
        ]
        with contextlib.ExitStack() as watching:
            received = [
                watching.enter_context(kind(self.url, since))
                for kind in (
                    event_watchers.StreamListener,
                    event_watchers.Poller,
                    event_watchers.StreamListener,
                )
            ]
            wait_until(lambda: all(message.connected for message in received))
            for client in clients:
                client.start()
            for number in range(RESTARTS):
                enough = (number + 1) * len(LIFE) * CYCLES // (RESTARTS + 2)
                wait_until(lambda enough=enough: len(received[0].seen) >= enough)
                # The first time as an operator does it, then as a power cut does.
                self.deployment.server.end(signal.SIGKILL if number else signal.SIGTERM)
                self.start_api()
            for client in clients:
                client.join(TIMEOUT)
            self.assertEqual([], [client.trouble for client in clients if client.trouble])
            expected = self.all_events(since)
            revisions = [item["revision"] for item in expected]
            self.assertEqual(list(range(since + 1, since + 1 + len(expected))), revisions)
            for message in received:
                message.wait_for(revisions[-1])
            # Between two restarts that follow fast a watcher may not be there at all.
            wait_until(lambda: all(message.connected > 1 for message in received))
        for message in received:
            self.assertEqual(expected, message.seen)
        lives = self.lives(expected)
        self.assertEqual(CLIENTS * (CYCLES // CLIENTS), len(lives))
        self.assertEqual([], [life for life in lives.values() if life != LIFE])


class WatchingOnPostgresqlTest(WatchingOnMariadbTest):
    kind = "postgresql"

    def setUp(self):
        if not ASKED:
            self.skipTest("ATTACHD_TEST_CYCLES=N has clients attach N times on PostgreSQL, too")
        super().setUp()

    def start_api(self):
        self.deployment.start_gunicorn().show_in_failures(self)


class SharesTest(Case):
    def start_api(self):
        self.deployment.start_uwsgi("--processes=1")

    def setUp(self):
        super().setUp()
        self.deployment.configure(SHARES)
        self.deployment.server.end()
        self.start_api()
        self.deployment.wait_until_served()

    def watch(self, user, project):
        """Open a stream; return the answer, without its body."""
        answer = requests.get(
            f"{self.url()}/v3/events",
            headers={
                **event_watchers.HEADERS,
                "Accept": "text/event-stream",
                "X-Auth-Token": f"{user}:{project}:reader",
            },
            stream=True,
            timeout=TIMEOUT,
        )
        self.addCleanup(answer.close)
        return answer

    def test_event_watch_of_one_project_leaves_watchers_to_others(self):
        statuses = [self.watch(f"user{number}", "one").status_code for number in range(8)]
        self.assertEqual([200] * 4 + [503] * 4, statuses)
        refused = self.watch("another", "one")
        self.assertEqual("1", refused.headers["Retry-After"])
        self.assertIn("[events]max_watchers_per_project", refused.text)
        self.assertEqual(200, self.watch("user0", "two").status_code)

    def test_event_watch_of_one_user_leaves_watchers_to_others(self):
        statuses = [self.watch("user", f"project{number}").status_code for number in range(8)]
        self.assertEqual([200] * 3 + [503] * 5, statuses)
        self.assertEqual(200, self.watch("other", "project0").status_code)


class CostTest(Case):
    """What listeners cost: by hand."""

    def setUp(self):
        if not LISTENERS:
            self.skipTest("ATTACHD_TEST_WATCHERS=N measures the cost of N clients")
        super().setUp()

    def start_api(self):
        # As many threads as there are listeners, in one process.
        self.deployment.start_uwsgi(f"--threads={LISTENERS + 16}", "--processes=1")

    def test_event_watch_cost_of_listeners_is_printed(self):
        before = self.run_cycles([])
        with contextlib.ExitStack() as watching:
            since = self.place()
            received = [
                watching.enter_context(event_watchers.StreamListener(self.url, since))
                for _ in range(LISTENERS)
            ]
            after = self.run_cycles(received)
        result = len(LIFE) * CYCLES
        more = (after - before) / (result * LISTENERS)
        sys.stderr.write(
            f"\n{CYCLES} cycles, {result} events: CPU of the API {before:.2f} s alone, "
            f"{after:.2f} s with {LISTENERS} listeners: "
            f"{1e6 * more:.0f} us for each event and listener\n"
        )

    def run_cycles(self, received):
        """Run all cycles, and return the seconds of CPU that the API took."""
        started, since = self.used(), self.place()
        volume = self.api.create_volume()
        client = event_watchers.Attacher(self.url, volume, CYCLES)
        client.run()
        self.assertEqual([], client.trouble)
        last = self.all_events(since)[-1]["revision"]
        for message in received:
            message.wait_for(last)
        return self.used() - started

    def used(self):
        """Return the seconds of CPU of the API's processes so far."""
        ticks = 0
        leader = str(self.deployment.server.pid)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:13])) if fields[3] == leader else 0
        return ticks / os.sysconf("SC_CLK_TCK")

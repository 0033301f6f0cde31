# SPDX-License-Identifier: Apache-2.0
"""A limit of the requests of a project, at a served API."""

import time

import requests
import testtools

from attachd.api.request_rate import BURST_SECONDS
from attachd.tests.fixtures import deployments

RATE = 2
BURST = int(RATE * BURST_SECONDS)
MEMBER = f"bob:{'b' * 32}:member,reader"
OTHER = f"carl:{'c' * 32}:member,reader"


class RequestRateTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        settings = f"[api]\nmax_requests_per_project = {RATE}\n"
        server = deployments.AllInOne.configured(self, deployments.NO_LOOP_DEVICES + settings)
        server.show_in_failures(self)
        self.url = f"{server.url}/v3/volumes"

    def send(self, count, token):
        """Send requests and return their answers."""
        headers = {"X-Auth-Token": token}
        with requests.Session() as session:
            return [session.get(self.url, headers=headers) for _ in range(count)]

    def test_project_over_limit_is_refused_until_it_pauses_and_others_are_served(self):
        started_at = time.monotonic()
        answers = self.send(10 * BURST, MEMBER)
        served = [answer.status_code for answer in answers].count(200)
        allowed = BURST + 1 + RATE * (time.monotonic() - started_at)
        self.assertTrue(BURST < served <= allowed, (served, allowed))
        refused = answers[-1]
        self.assertEqual(429, refused.status_code, refused.text)
        self.assertIn("max_requests_per_project", refused.json()["overLimit"]["message"])
        self.assertEqual({200}, {answer.status_code for answer in self.send(BURST, OTHER)})
        time.sleep(int(refused.headers["Retry-After"]))  # As the refusal says.
        self.assertEqual(200, self.send(1, MEMBER)[0].status_code)

    def test_administrator_is_not_limited(self):
        answers = self.send(3 * BURST, "admin:" + "b" * 32)
        self.assertEqual({200}, {answer.status_code for answer in answers})

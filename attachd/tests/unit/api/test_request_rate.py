# SPDX-License-Identifier: Apache-2.0
"""The limit of the requests of one project."""

from unittest import mock

import testtools

from attachd import exception
from attachd.api import request_rate
from attachd.context import RequestContext
from attachd.tests.fixtures.conf_fixture import override

RATE = 4
BURST = int(RATE * request_rate.BURST_SECONDS) + 1


def context(project_id="a", **values):
    ctx = RequestContext(project_id=project_id, by_service=values.pop("by_service", False))
    ctx.is_admin = values.pop("is_admin", False)
    return ctx


class RequestRateTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.patch.object(request_rate.time, "monotonic", lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)
        override(self, "max_requests_per_project", RATE, "api")
        self.rate = request_rate.RequestRate.from_configuration()

    def count_served(self, requests=1000, **who):
        """Send requests at once and return how many were served."""
        ctx, served = context(**who), 0
        for _ in range(requests):
            try:
                self.rate.check(ctx)
            except exception.TooManyCalls as error:
                self.refused = error
            else:
                served += 1
        return served

    def test_burst_is_served_and_then_the_rate(self):
        self.assertEqual(BURST, self.count_served())
        self.assertEqual(0, self.count_served())
        self.now += 2
        self.assertEqual(2 * RATE, self.count_served())
        self.now += 3600
        self.assertEqual(BURST, self.count_served())

    def test_refusal_names_option_and_time(self):
        self.count_served()
        self.assertIn("[api]max_requests_per_project", str(self.refused))
        retry_after = self.refused.details["retry_after"]
        self.assertEqual(1 / RATE, retry_after)
        self.now += retry_after
        self.assertEqual(1, self.count_served())

    def test_projects_have_limits_of_their_own(self):
        self.count_served()
        self.assertEqual(BURST, self.count_served(project_id="b"))

    def test_administrators_and_services_are_not_limited(self):
        self.assertEqual(1000, self.count_served(is_admin=True))
        self.assertEqual(1000, self.count_served(by_service=True))
        self.assertEqual(BURST, self.count_served())

    def test_projects_that_send_nothing_are_forgotten(self):
        with mock.patch.object(request_rate, "MAX_PROJECTS", 10):
            for number in range(10):
                self.count_served(1, project_id=f"{number}")
            self.now += 60
            self.count_served(1, project_id="new")
        self.assertEqual(["new"], [*self.rate._free_at])

    def test_no_limit_by_default(self):
        override(self, "max_requests_per_project", 0, "api")
        self.assertIsNone(request_rate.RequestRate.from_configuration())

# SPDX-License-Identifier: Apache-2.0
"""EventWatcher: what is waited for, how long, and what ends it."""

import itertools
import unittest
from unittest import mock

from keystoneauth1 import exceptions as transport
from openstack import exceptions
import requests

from attachd.cli import watch as watch_module
from attachd.cli.watch import EventWatcher, WatchTimeout

QUERY = {"volume_id": "v1"}


def refusal(status, **headers):
    response = requests.Response()
    response.status_code = status
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return exceptions.HttpException(response=response)


class Storage:
    """Answers what a test says, or raises it, and takes as long as it says."""

    def __init__(self, clock, *answers, seconds=0.0):
        self.asked = []
        self._clock = clock
        self._answers = list(answers)
        self._seconds = seconds

    def events(self, query, wait=0):
        self.asked.append((query, wait))
        self._clock.now += self._seconds
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Clock:
    """A clock that a pause moves on."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


class WatchingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()
        patch = mock.patch.object(watch_module, "time", self.clock)
        patch.start()
        self.addCleanup(patch.stop)

    def watcher(self, *answers, seconds=None, took=0.0):
        self.storage = Storage(self.clock, *answers, seconds=took)
        return EventWatcher(self.storage, seconds)

    def first(self, events, count):
        return list(itertools.islice(events, count))

    def test_each_answer_tells_where_to_go_on(self):
        watcher = self.watcher((["a", "b"], 12), ([], 15), (["c"], 16), took=10)
        self.assertEqual(["a", "b", "c"], self.first(watcher.since(10, QUERY), 3))
        self.assertEqual(
            [{"volume_id": "v1", "since": since, "wait": "50"} for since in ("10", "12", "15")],
            [query for query, _wait in self.storage.asked],
        )
        self.assertEqual([], self.clock.pauses)

    def test_it_goes_on_when_the_api_cannot_answer_now(self):
        for error in (refusal(502), refusal(503), refusal(504), refusal(429)):
            watcher = self.watcher(error, ([], 4))
            with self.assertLogs(watch_module.LOG, "WARNING") as told:
                self.assertEqual(4, watcher.now())
            self.assertEqual(1, len(told.output))

    def test_and_when_it_cannot_be_reached_any_more(self):
        broken = (
            transport.ConnectFailure("refused"),
            transport.ConnectTimeout("late"),
            transport.UnknownConnectionError("cut", ValueError()),
            transport.ServiceUnavailable("keystone"),
        )
        watcher = self.watcher((["a"], 11), *broken, (["b"], 12))
        with self.assertLogs(watch_module.LOG, "WARNING") as told:
            self.assertEqual(["a", "b"], self.first(watcher.since(10, QUERY), 2))
        self.assertEqual(1, len(told.output), "an outage is told once")
        self.assertEqual([1, 2, 4, 8], self.clock.pauses)
        self.assertEqual("11", self.storage.asked[-1][0]["since"])

    def test_an_api_that_was_never_reached_is_a_mistake(self):
        with self.assertRaises(transport.ConnectFailure):
            self.watcher(transport.ConnectFailure("refused")).now()

    def test_so_is_what_it_refuses(self):
        for error in (refusal(400), refusal(403), refusal(410), refusal(500)):
            with self.assertRaises(exceptions.HttpException):
                self.watcher(error).now()

    def test_it_comes_again_when_it_is_told_to(self):
        told = ("7", "9999", "Wed, 21 Oct 2026 07:28:00 GMT", "0")
        watcher = self.watcher(*(refusal(503, Retry_After=each) for each in told), ([], 4))
        with self.assertLogs(watch_module.LOG, "WARNING"):
            watcher.now()
        self.assertEqual([7, watch_module.MAX_BACKOFF, 4, 8], self.clock.pauses)

    def test_pauses_have_an_end(self):
        watcher = self.watcher(*(refusal(503) for _ in range(8)), ([], 4))
        with self.assertLogs(watch_module.LOG, "WARNING"):
            watcher.now()
        self.assertEqual([1, 2, 4, 8, 16, 30, 30, 30], self.clock.pauses)

    def test_an_api_that_does_not_wait_is_not_asked_without_end(self):
        watcher = self.watcher(([], 10), ([], 10), (["a"], 11))
        self.assertEqual(["a"], self.first(watcher.since(10, QUERY), 1))
        self.assertEqual([1, 1], self.clock.pauses)

    def test_the_time_is_up_after_an_answer(self):
        watcher = self.watcher(([], 10), ([], 10), seconds=70.5, took=50)
        with self.assertRaises(WatchTimeout):
            self.first(watcher.since(10, QUERY), 1)
        self.assertEqual([50, 21], [wait for _query, wait in self.storage.asked])

    def test_what_an_outage_took_is_not_waited_for_again(self):
        # Seconds of the clock of the test.
        watcher = self.watcher(*(refusal(503) for _ in range(4)), ([], 10), seconds=20, took=1)
        with self.assertLogs(watch_module.LOG, "WARNING"), self.assertRaises(WatchTimeout):
            self.first(watcher.since(10, QUERY), 1)
        asked = [wait for _query, wait in self.storage.asked]
        self.assertEqual([20, 18, 15, 10, 1], asked)

    def test_the_time_is_up_while_the_api_is_away(self):
        watcher = self.watcher(refusal(503), refusal(503), seconds=2.5)  # of the clock of the test
        with self.assertLogs(watch_module.LOG, "WARNING"), self.assertRaises(WatchTimeout):
            watcher.now()
        self.assertEqual([1, 1.5], self.clock.pauses)

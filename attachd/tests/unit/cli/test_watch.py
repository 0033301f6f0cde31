# SPDX-License-Identifier: Apache-2.0
"""EventWatcher: retries, pauses and timeouts."""

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
    """Returns or raises the given answers, each after the given time."""

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
    """A clock that is advanced by pauses."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


class EventWatcherTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()
        self.enterContext(mock.patch.object(watch_module, "time", self.clock))

    def watcher(self, *answers, seconds=None, took=0.0):
        self.storage = Storage(self.clock, *answers, seconds=took)
        return EventWatcher(self.storage, seconds)

    def first(self, events, count):
        return list(itertools.islice(events, count))

    def test_since_continues_at_revision_of_answer(self):
        watcher = self.watcher((["a", "b"], 12), ([], 15), (["c"], 16), took=10)
        self.assertEqual(["a", "b", "c"], self.first(watcher.since(10, QUERY), 3))
        self.assertEqual(
            [{"volume_id": "v1", "since": since, "wait": "50"} for since in ("10", "12", "15")],
            [query for query, _wait in self.storage.asked],
        )
        self.assertEqual([], self.clock.pauses)

    def test_now_retries_after_temporary_http_error(self):
        for error in (refusal(502), refusal(503), refusal(504), refusal(429)):
            watcher = self.watcher(error, ([], 4))
            with self.assertLogs(watch_module.LOG, "WARNING") as logged:
                self.assertEqual(4, watcher.now())
            self.assertEqual(1, len(logged.output))

    def test_since_retries_with_backoff_after_connection_errors(self):
        broken = (
            transport.ConnectFailure("refused"),
            transport.ConnectTimeout("late"),
            transport.UnknownConnectionError("cut", ValueError()),
            transport.ServiceUnavailable("keystone"),
        )
        watcher = self.watcher((["a"], 11), *broken, (["b"], 12))
        with self.assertLogs(watch_module.LOG, "WARNING") as logged:
            self.assertEqual(["a", "b"], self.first(watcher.since(10, QUERY), 2))
        self.assertEqual(1, len(logged.output), "an outage is logged once")
        self.assertEqual([1, 2, 4, 8], self.clock.pauses)
        self.assertEqual("11", self.storage.asked[-1][0]["since"])

    def test_now_with_first_connection_failure_raises(self):
        with self.assertRaises(transport.ConnectFailure):
            self.watcher(transport.ConnectFailure("refused")).now()

    def test_now_with_refusal_raises(self):
        for error in (refusal(400), refusal(403), refusal(410), refusal(500)):
            with self.assertRaises(exceptions.HttpException):
                self.watcher(error).now()

    def test_retry_after_header_sets_pause(self):
        headers = ("7", "9999", "Wed, 21 Oct 2026 07:28:00 GMT", "0")
        watcher = self.watcher(*(refusal(503, Retry_After=header) for header in headers), ([], 4))
        with self.assertLogs(watch_module.LOG, "WARNING"):
            watcher.now()
        self.assertEqual([7, watch_module.MAX_BACKOFF, 4, 8], self.clock.pauses)

    def test_backoff_has_maximum(self):
        watcher = self.watcher(*(refusal(503) for _ in range(8)), ([], 4))
        with self.assertLogs(watch_module.LOG, "WARNING"):
            watcher.now()
        self.assertEqual([1, 2, 4, 8, 16, 30, 30, 30], self.clock.pauses)

    def test_since_pauses_after_immediate_empty_answers(self):
        watcher = self.watcher(([], 10), ([], 10), (["a"], 11))
        self.assertEqual(["a"], self.first(watcher.since(10, QUERY), 1))
        self.assertEqual([1, 1], self.clock.pauses)

    def test_since_after_timeout_raises_watch_timeout(self):
        watcher = self.watcher(([], 10), ([], 10), seconds=70.5, took=50)
        with self.assertRaises(WatchTimeout):
            self.first(watcher.since(10, QUERY), 1)
        self.assertEqual([50, 21], [wait for _query, wait in self.storage.asked])

    def test_timeout_includes_duration_of_outage(self):
        # Seconds of the clock of the test.
        watcher = self.watcher(*(refusal(503) for _ in range(4)), ([], 10), seconds=20, took=1)
        with self.assertLogs(watch_module.LOG, "WARNING"), self.assertRaises(WatchTimeout):
            self.first(watcher.since(10, QUERY), 1)
        asked = [wait for _query, wait in self.storage.asked]
        self.assertEqual([20, 18, 15, 10, 1], asked)

    def test_timeout_ends_retries(self):
        watcher = self.watcher(refusal(503), refusal(503), seconds=2.5)  # of the clock of the test
        with self.assertLogs(watch_module.LOG, "WARNING"), self.assertRaises(WatchTimeout):
            watcher.now()
        self.assertEqual([1, 1.5], self.clock.pauses)

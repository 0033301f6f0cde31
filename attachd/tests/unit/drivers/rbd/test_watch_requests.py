# SPDX-License-Identifier: Apache-2.0
"""The process that is asked for clients of images: its answers, its end, and no answer."""

import logging
import sys
import threading
import unittest
from unittest import mock

from attachd.drivers.rbd import watch_requests
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.unit.drivers import configured
from attachd.tests.wait import wait_until

PROGRAM = """
import json, os, sys, time
print(json.dumps(["settings", json.loads(sys.stdin.readline())]), file=sys.stderr)
late = []
for line in sys.stdin:
    number, pool, name = json.loads(line)
    if name == "end":
        os._exit(1)
    if name == "late":
        late.append(number)
    elif name != "never":
        for answered in (number, *late):
            print(json.dumps([answered, name == "watched"]), flush=True)
"""


class WatchRequestsTest(unittest.TestCase):
    """A program in place of that which needs Ceph."""

    def setUp(self):
        super().setUp()
        command = (sys.executable, "-c", PROGRAM)
        self.enterContext(mock.patch.object(watch_requests, "_COMMAND", command))
        options = configured.driver(RbdDriver).options
        self.requests = watch_requests.WatchRequests(Cluster(options), options)
        self.addCleanup(self.close)

    def close(self):
        worker = self.requests._worker
        self.requests.close()
        if worker:
            wait_until(lambda: worker.has_ended)

    def ask(self, name):
        return self.requests.may_be_watched("volumes", name)

    def test_answers_belong_to_their_requests(self):
        self.assertTrue(self.ask("watched"))
        self.assertFalse(self.ask("free"))
        late = []
        thread = threading.Thread(target=lambda: late.append(self.ask("late")))
        thread.start()
        wait_until(lambda: self.requests._worker._waiting)
        self.assertTrue(self.ask("watched"))
        thread.join()
        self.assertEqual([True], late)

    def test_ended_process_may_have_watched_objects_and_is_replaced_later(self):
        self.assertFalse(self.ask("free"))
        self.assertTrue(self.ask("end"))
        wait_until(lambda: self.requests._worker.has_ended)
        self.assertTrue(self.ask("free"))
        with (
            mock.patch.object(watch_requests, "RESTART_INTERVAL", 0),
            self.assertLogs(watch_requests.LOG, logging.WARNING),
        ):
            self.assertFalse(self.ask("free"))

    def test_process_that_does_not_answer_is_ended(self):
        # As short as possible: it never answers.
        with mock.patch.object(watch_requests, "ANSWER_TIMEOUT", 0.01):
            self.assertTrue(self.ask("never"))
        wait_until(lambda: self.requests._worker.has_ended)

    def test_closed_requests_start_another_process(self):
        self.assertFalse(self.ask("free"))
        self.close()
        self.assertFalse(self.ask("free"))

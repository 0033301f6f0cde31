# SPDX-License-Identifier: Apache-2.0

import threading
from unittest import mock

from attachd.rpc import deadlines
from attachd.tests.fixtures import conf_fixture


class DeadlineTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.now = 100.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(deadlines, "time", clock))
        conf_fixture.override(self, "attach_timeout", 60, "rpc")

    def test_work_without_caller_may_wait_for_attach_timeout(self):
        self.assertEqual(60, deadlines.seconds_left())

    def test_call_may_wait_as_long_as_its_caller_does(self):
        with deadlines.answering_within(15):
            self.now += 5
            self.assertEqual(10, deadlines.seconds_left())
            self.now += 20
            self.assertEqual(deadlines.MINIMUM, deadlines.seconds_left())
        self.assertEqual(60, deadlines.seconds_left())

    def test_other_threads_have_no_deadline(self):
        found = []
        with deadlines.answering_within(15):
            thread = threading.Thread(target=lambda: found.append(deadlines.seconds_left()))
            thread.start()
            thread.join()
        self.assertEqual([60], found)

# SPDX-License-Identifier: Apache-2.0
import threading
import unittest

from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.platforms.volume_locks import VolumeLocks
from attachd.tests.wait import TIMEOUT


class LocksTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.locks = VolumeLocks()

    def test_calls_for_one_volume_follow_each_other(self):
        entered, order = threading.Event(), []

        def work():
            entered.set()
            with self.locks.hold("v"):
                order.append("second")

        with self.locks.hold("v"):
            thread = threading.Thread(target=work)
            thread.start()
            self.assertTrue(entered.wait(TIMEOUT))
            order.append("first")
        thread.join(TIMEOUT)
        self.assertEqual(["first", "second"], order)
        self.assertEqual({}, self.locks._locks)

    def test_calls_for_other_volumes_do_not_wait(self):
        with self.locks.hold("v"), self.locks.hold("w"):
            pass

    def test_call_without_time_is_aborted(self):
        with (
            self.locks.hold("v"),
            calls.serving(Call.start(0.0)),
            self.assertRaises(CallError) as caught,
            self.locks.hold("v"),
        ):
            self.fail("it waits no longer than its caller")
        self.assertEqual("ABORTED", caught.exception.code.name)
        self.assertEqual({}, self.locks._locks)

    def test_call_whose_caller_has_gone_does_not_start(self):
        with (
            calls.serving(Call.start(None, is_awaited=lambda: False)),
            self.assertRaises(CallError) as caught,
            self.locks.hold("v"),
        ):
            self.fail("the caller may have made the opposite call since")
        self.assertEqual("CANCELLED", caught.exception.code.name)
        self.assertEqual({}, self.locks._locks)

# SPDX-License-Identifier: Apache-2.0
import logging
import time
import unittest

from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError, ErrorCode


class CallTest(unittest.TestCase):
    def test_deadline_is_before_limit_of_caller(self):
        call = Call.start(10.0)
        self.assertLess(call.remaining, 10.0)
        self.assertGreater(call.remaining, 5.0)

    def test_deadline_without_limit_is_bounded(self):
        for limit in (None, 1e9):
            with self.subTest(limit):
                self.assertLessEqual(Call.start(limit).remaining, calls.LONGEST)

    def test_remaining_time_is_not_negative(self):
        self.assertEqual(0.0, Call("req", time.monotonic() - 1).remaining)

    def test_request_ids_are_those_of_openstack(self):
        self.assertRegex(Call.start(None).request_id, r"^req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-")

    def test_current_call_is_that_of_thread(self):
        call = Call.start(None)
        with calls.serving(call):
            self.assertIs(call, calls.current())
        self.assertIsNot(call, calls.current())

    def test_error_has_code_and_message(self):
        error = CallError(ErrorCode.ABORTED, "why")
        self.assertEqual((ErrorCode.ABORTED, "why"), (error.code, f"{error}"))


class RequestIdsTest(unittest.TestCase):
    def _filtered(self):
        record = logging.makeLogRecord({})
        self.assertTrue(calls.RequestIds().filter(record))
        return record.request_id

    def test_records_have_request_id_of_call(self):
        call = Call.start(None)
        with calls.serving(call):
            self.assertEqual(call.request_id, self._filtered())

    def test_records_outside_of_calls_have_dash(self):
        self.assertEqual("-", self._filtered())

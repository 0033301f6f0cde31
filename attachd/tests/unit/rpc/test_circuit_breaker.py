# SPDX-License-Identifier: Apache-2.0
"""Who may still wait for a backend that has fallen silent."""

import contextlib
import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd import exception
from attachd.rpc import circuit_breaker
from attachd.tests.fixtures import conf_fixture


class QueueTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "max_calls_unresponsive", 2, "rpc")
        self.now = 100.0
        self.enterContext(mock.patch.object(circuit_breaker, "monotonic", lambda: self.now))
        self.queue = circuit_breaker.BackendCircuitBreaker("h@b")

    def add_callers(self, count):
        """Have so many calls wait, until the stack that is returned is closed."""
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        for _ in range(count):
            stack.enter_context(self.queue.guarded_call("attach"))
        return stack

    def give_up(self):
        with self.assertRaises(messaging.MessagingTimeout), self.queue.guarded_call("attach"):
            raise messaging.MessagingTimeout

    def test_any_number_may_wait_for_one_that_answers(self):
        self.add_callers(50)
        self.now += circuit_breaker.OPEN_AFTER - 1
        with self.queue.guarded_call("attach"):
            pass  # is answered
        self.now += circuit_breaker.OPEN_AFTER - 1
        self.add_callers(50)
        self.assertEqual(100, self.queue.waiting)

    def test_only_some_may_wait_for_one_that_is_silent(self):
        self.add_callers(1)
        self.now += circuit_breaker.OPEN_AFTER + 1
        self.add_callers(1)
        with self.assertRaisesRegex(exception.Unavailable, "h@b has answered nothing for 11 sec"):
            self.add_callers(1)
        self.assertEqual(2, self.queue.waiting)

    def test_it_stays_silent_while_callers_give_up(self):
        self.give_up()
        self.now += circuit_breaker.OPEN_AFTER + 1
        self.give_up()
        self.add_callers(2)
        self.assertRaises(exception.Unavailable, self.add_callers, 1)

    def test_one_answer_is_enough_and_an_error_is_one(self):
        self.give_up()
        self.now += circuit_breaker.OPEN_AFTER + 1
        with contextlib.suppress(exception.ConnectFailed), self.queue.guarded_call("attach"):
            raise exception.ConnectFailed(attachment_id="a", reason="no.")
        self.add_callers(5)

    def test_one_that_nobody_asks_is_not_silent(self):
        self.add_callers(1).close()
        self.now += 1000
        self.add_callers(5)

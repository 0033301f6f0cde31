# SPDX-License-Identifier: Apache-2.0
"""How errors become answers, and whose log is changed."""

import unittest

import oslo_messaging as messaging

from attachd import exception
from attachd.manager import rpc_decorators


class AnsweringTest(unittest.TestCase):
    def test_errors_of_ours_are_answers_and_others_are_not(self):
        @rpc_decorators.expected_errors
        def fail(error):
            """Fail."""
            raise error

        with self.assertRaises(messaging.ExpectedException):
            fail(exception.Conflict(reason="x"))
        with self.assertRaises(ZeroDivisionError):
            fail(ZeroDivisionError())
        self.assertEqual(("fail", "Fail."), (fail.__name__, fail.__doc__))

# SPDX-License-Identifier: Apache-2.0
"""Errors of RPC methods as answers."""

import unittest

import oslo_messaging as messaging

from attachd import exception
from attachd.manager import rpc_decorators


class ExpectedErrorsTest(unittest.TestCase):
    def test_expected_errors_returns_attachd_errors_and_raises_others(self):
        @rpc_decorators.expected_errors
        def fail(error):
            """Fail."""
            raise error

        with self.assertRaises(messaging.ExpectedException):
            fail(exception.Conflict(reason="x"))
        with self.assertRaises(ZeroDivisionError):
            fail(ZeroDivisionError())
        self.assertEqual(("fail", "Fail."), (fail.__name__, fail.__doc__))

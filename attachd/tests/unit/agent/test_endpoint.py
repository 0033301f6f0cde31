# SPDX-License-Identifier: Apache-2.0
"""What a host cannot do is an answer; what nobody foresaw is an accident."""

import unittest
from unittest import mock

from oslo_messaging.rpc.dispatcher import ExpectedException

from attachd import exception
from attachd.agent.endpoint import Endpoint
from attachd.context import RequestContext

CONTEXT = RequestContext(overwrite=False)


class EndpointTest(unittest.TestCase):
    def test_it_looks(self):
        look = mock.Mock(return_value=None)
        self.assertIsNone(Endpoint(look).reconcile(CONTEXT, attachment_id="a"))
        look.assert_called_once_with("a")

    def test_an_error_of_the_host_is_an_answer(self):
        busy = exception.DeviceBusy(device="/dev/sdb", users="x")
        for error in (busy, exception.Unavailable(reason="no manager")):
            with self.assertRaises(ExpectedException) as raised:
                Endpoint(mock.Mock(side_effect=error)).reconcile(CONTEXT, "a")
            self.assertIs(error, raised.exception.exc_info[1])

    def test_an_accident_is_none(self):
        with self.assertRaises(ZeroDivisionError):
            Endpoint(mock.Mock(side_effect=ZeroDivisionError)).reconcile(CONTEXT, "a")

# SPDX-License-Identifier: Apache-2.0
"""Errors of a node have the statuses of the specification."""

import unittest

from grpc import StatusCode

from attachd import exception
from attachd.agent import local_socket
from attachd.agent.local_socket import Code
from attachd.csi import node_errors
from attachd.csi.calls import CallError
from attachd.node.volumes import Problem, Refused


class NodeErrorsTest(unittest.TestCase):
    def code_of(self, error):
        with (
            self.assertRaisesRegex(CallError, "why") as raised,
            node_errors.as_status(StatusCode.INTERNAL),
        ):
            raise error
        return raised.exception.code

    def test_each_code_of_agent_has_a_status(self):
        for code in Code:
            status = self.code_of(local_socket.CallError(code, "why"))
            is_waiting = code in {Code.NOT_READY, Code.BUSY, Code.UNAVAILABLE}
            self.assertEqual(
                is_waiting, status in {StatusCode.UNAVAILABLE, StatusCode.ABORTED}, code
            )

    def test_each_refusal_has_a_status(self):
        statuses = [self.code_of(Refused(problem, "why")) for problem in Problem]
        expected = [
            StatusCode.FAILED_PRECONDITION,
            StatusCode.ALREADY_EXISTS,
            StatusCode.FAILED_PRECONDITION,
            StatusCode.ABORTED,
        ]
        self.assertEqual(expected, statuses)

    def test_work_in_progress_is_no_final_status(self):
        for error in (
            exception.LocalConflict(reason="why"),
            exception.DeviceBusy(device="/dev/sdx", users="why"),
        ):
            self.assertEqual(StatusCode.ABORTED, self.code_of(error))

    def test_failure_of_host_has_status_of_caller(self):
        error = exception.HostError(reason="why")
        self.assertEqual(StatusCode.INTERNAL, self.code_of(error))

# SPDX-License-Identifier: Apache-2.0
"""Errors of a node have the statuses of the specification."""

import unittest

from attachd import exception
from attachd.agent import local_socket
from attachd.agent.local_socket import Code
from attachd.csi import node_errors
from attachd.node.volumes import Problem, Refused
from attachd.platforms.calls import CallError, ErrorCode


class NodeErrorsTest(unittest.TestCase):
    def code_of(self, error):
        with (
            self.assertRaisesRegex(CallError, "why") as raised,
            node_errors.as_status(ErrorCode.INTERNAL),
        ):
            raise error
        return raised.exception.code

    def test_each_code_of_agent_has_a_status(self):
        for code in Code:
            status = self.code_of(local_socket.CallError(code, "why"))
            is_waiting = code in {Code.NOT_READY, Code.BUSY, Code.UNAVAILABLE}
            self.assertEqual(
                is_waiting, status in {ErrorCode.UNAVAILABLE, ErrorCode.ABORTED}, code
            )

    def test_growth_that_needs_detach_is_volume_in_use(self):
        error = local_socket.CallError(Code.DETACH_FIRST, "why")
        self.assertEqual(ErrorCode.FAILED_PRECONDITION, self.code_of(error))

    def test_each_refusal_has_a_status(self):
        statuses = [self.code_of(Refused(problem, "why")) for problem in Problem]
        expected = [
            ErrorCode.FAILED_PRECONDITION,
            ErrorCode.ALREADY_EXISTS,
            ErrorCode.FAILED_PRECONDITION,
            ErrorCode.ABORTED,
        ]
        self.assertEqual(expected, statuses)

    def test_work_in_progress_is_no_final_status(self):
        for error in (
            exception.LocalConflict(reason="why"),
            exception.DeviceBusy(device="/dev/sdx", users="why"),
        ):
            self.assertEqual(ErrorCode.ABORTED, self.code_of(error))

    def test_failure_of_host_has_status_of_caller(self):
        error = exception.HostError(reason="why")
        self.assertEqual(ErrorCode.INTERNAL, self.code_of(error))

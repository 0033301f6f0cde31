# SPDX-License-Identifier: Apache-2.0
"""The fence agent, against a stand-in of a cloud."""

import contextlib
import io
import unittest
from unittest import mock

from attachd.cli import fence_agent
from attachd.tests.unit.cli.programs import FENCED, Cloud

PROVED = {**FENCED, "result": "proved", "reason": None}
PENDING = {**FENCED, "result": "pending", "reason": "There was no answer in time."}
FAILED = {**FENCED, "result": "failed", "reason": "It is still there."}


class FenceAgentTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.cloud = Cloud()
        self.now = 0.0

    def run_agent(self, lines, *answers):
        """Run it with lines at its input; the cloud answers to each fence in turn."""
        answers = list(answers)
        self.said = io.StringIO()

        def sleep(seconds):
            self.now += seconds

        def request(url, method, **more):
            if url.endswith("/fence"):
                self.cloud.fenced = answers.pop(0)
            return real(url, method, **more)

        real = self.cloud.request
        with (
            mock.patch.object(fence_agent, "_connect", return_value=self.cloud),
            mock.patch.object(fence_agent, "time", mock.Mock(sleep=sleep, monotonic=self.clock)),
            mock.patch.object(self.cloud, "request", request),
            mock.patch("sys.stdin", io.StringIO(lines)),
            contextlib.redirect_stderr(self.said),
        ):
            return fence_agent.main([])

    def clock(self):
        return self.now

    def test_off_waits_for_pending_attachments(self):
        self.assertEqual(0, self.run_agent("action=off\nplug=h\n", [PROVED, PENDING], [PROVED]))
        self.assertEqual("", self.said.getvalue())

    def test_off_ends_in_time(self):
        code = self.run_agent("action=off\nplug=h\npower_timeout=3\n", *[[PENDING]] * 3)
        self.assertEqual(1, code)
        self.assertIn("a1 of volume v1 is pending: There was no answer", self.said.getvalue())

    def test_off_names_what_has_failed(self):
        self.assertEqual(1, self.run_agent("action=off\nplug=h\n", [PROVED, FAILED]))
        self.assertIn("is failed: It is still there.", self.said.getvalue())

    def test_status_of_fenced_host_is_off(self):
        self.assertEqual(2, self.run_agent("action=status\nplug=h\n"))

    def test_status_of_unknown_host_is_an_error(self):
        self.cloud.missing = {"/hosts/h"}
        self.assertEqual(1, self.run_agent("action=status\nplug=h\n"))

# SPDX-License-Identifier: Apache-2.0
"""Processes by their command lines."""

import signal
import subprocess
import unittest
import uuid

from attachd.agent import processes


class ProcessTest(unittest.TestCase):
    """Which process is meant, and which is not."""

    def setUp(self):
        super().setUp()
        self.mark = f"{uuid.uuid4()}"
        line = ["sh", "-c", "read forever", self.mark]
        self.child = subprocess.Popen(line, stdin=subprocess.PIPE)
        self.addCleanup(self.child.stdin.close)
        self.addCleanup(self.child.wait)
        self.addCleanup(self.child.kill)

    def found(self):
        return processes.find(lambda line: self.mark in line)

    def test_a_process_is_found_until_it_has_ended(self):
        (found,) = self.found()
        self.assertEqual(self.child.pid, found.id)
        self.assertFalse(found.wait(0.01))
        self.assertTrue(found.end(signal.SIGKILL, 60))
        self.assertEqual([], self.found())
        # Nobody has asked for its exit code yet, but it has ended.
        self.assertTrue(found.wait(0))
        self.child.wait()
        self.assertTrue(found.end(signal.SIGKILL, 0))

    def test_another_process_with_its_number_is_left_alone(self):
        other = processes.Process(self.child.pid, ("sh", "-c", "something else"))
        self.assertTrue(other.end(signal.SIGKILL, 0))
        self.assertIsNone(self.child.poll())

    def test_a_command_that_became_what_it_starts_is_the_same(self):
        before = processes.Process(self.child.pid, ("setsid", "--fork", *self.found()[0].line))
        self.assertTrue(before.end(signal.SIGKILL, 60))
        self.assertEqual(-signal.SIGKILL, self.child.wait())

    def test_one_that_takes_its_time_is_told_of(self):
        self.child.send_signal(signal.SIGSTOP)
        self.assertFalse(self.found()[0].end(signal.SIGTERM, 0.01))

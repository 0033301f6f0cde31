# SPDX-License-Identifier: Apache-2.0
"""Processes by their folders and command lines."""

import os
from pathlib import Path
import signal
import subprocess

import fixtures

from attachd.agent.connectors.qemu import processes
from attachd.tests.wait import TIMEOUT


class ProcessTest(fixtures.TestWithFixtures):
    """Which process is meant, and which is not."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        self.child = self.start("sh", "-c", "read it; exec sh -c 'echo; read forever; :'", "mark")

    def start(self, *line):
        child = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self.folder
        )
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def found(self):
        return processes.find(self.folder, lambda line: "mark" in line)

    def test_a_process_is_found_until_it_has_ended(self):
        (found,) = self.found()
        self.assertEqual(self.child.pid, found.id)
        self.assertFalse(found.wait(0.01))  # it waits for input that never comes
        self.assertTrue(found.end(signal.SIGKILL, TIMEOUT))
        self.assertEqual([], self.found())
        # Nobody has asked for its exit code yet, but it has ended.
        self.assertTrue(found.wait(0))
        self.child.wait()
        self.assertTrue(found.end(signal.SIGKILL, 0))

    def test_others_are_not_found(self):
        self.start("sh", "-c", "read forever; :", "other")
        self.assertEqual([self.child.pid], [each.id for each in self.found()])
        self.assertEqual([], processes.find(self.folder.parent, lambda line: "mark" in line))

    def test_another_process_with_its_number_is_left_alone(self):
        (found,) = self.found()
        other = processes.Process(found.id, found.started - 1, found.line)
        self.assertTrue(other.end(signal.SIGKILL, 0))
        self.assertIsNone(self.child.poll())

    def test_a_command_that_became_another_is_the_same(self):
        (before,) = self.found()
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        self.child.stdout.readline()
        self.assertEqual([], self.found())
        self.assertFalse(before.wait(0))
        self.assertTrue(before.end(signal.SIGKILL, TIMEOUT))
        self.assertEqual(-signal.SIGKILL, self.child.wait())

    def test_one_that_takes_its_time_is_told_of(self):
        self.child.send_signal(signal.SIGSTOP)
        # Until it has stopped, another signal would be heard first.
        os.waitpid(self.child.pid, os.WUNTRACED)
        self.assertFalse(self.found()[0].end(signal.SIGTERM, 0.01))

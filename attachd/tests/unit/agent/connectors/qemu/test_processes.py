# SPDX-License-Identifier: Apache-2.0
"""Processes, found by their directories and command lines."""

import os
from pathlib import Path
import signal
import subprocess

import fixtures

from attachd.agent.connectors.qemu import processes
from attachd.tests.wait import TIMEOUT


class ProcessTest(fixtures.TestWithFixtures):
    """Processes that are found, and others."""

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

    def test_find_returns_process_until_its_end(self):
        (found,) = self.found()
        self.assertEqual(self.child.pid, found.id)
        self.assertFalse(found.wait(0.01))  # it waits for input that never comes
        self.assertTrue(found.end(signal.SIGKILL, TIMEOUT))
        self.assertEqual([], self.found())
        # It has ended, and its parent has not read its exit code.
        self.assertTrue(found.wait(0))
        self.child.wait()
        self.assertTrue(found.end(signal.SIGKILL, 0))

    def test_find_ignores_other_processes(self):
        self.start("sh", "-c", "read forever; :", "other")
        self.assertEqual([self.child.pid], [item.id for item in self.found()])
        self.assertEqual([], processes.find(self.folder.parent, lambda line: "mark" in line))

    def test_end_leaves_process_with_reused_number(self):
        (found,) = self.found()
        other = processes.Process(found.id, found.started - 1, found.line)
        self.assertTrue(other.end(signal.SIGKILL, 0))
        self.assertIsNone(self.child.poll())

    def test_end_works_after_execve(self):
        (before,) = self.found()
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        self.child.stdout.readline()
        self.assertEqual([], self.found())
        self.assertFalse(before.wait(0))
        self.assertTrue(before.end(signal.SIGKILL, TIMEOUT))
        self.assertEqual(-signal.SIGKILL, self.child.wait())

    def test_end_of_stopped_process_returns_false_after_timeout(self):
        self.child.send_signal(signal.SIGSTOP)
        # Until it has stopped, another signal would be handled first.
        os.waitpid(self.child.pid, os.WUNTRACED)
        self.assertFalse(self.found()[0].end(signal.SIGTERM, 0.01))

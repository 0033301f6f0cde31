# SPDX-License-Identifier: Apache-2.0
"""Locks that threads and processes have in turn."""

from pathlib import Path
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from attachd.manager import turns

PATIENCE = 60

_OTHER = """
import pathlib, sys
from attachd.manager import turns
sys.stdout.write("comes\\n")
sys.stdout.flush()
with turns.taken(pathlib.Path(sys.argv[1])):
    sys.stdout.write("has it\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


class TurnsTest(unittest.TestCase):
    """One lock."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "locks" / "one"
        self.order = []

    def begin(self, name):
        """Let a thread want the lock, and return once it is in the line."""

        def want():
            with turns.taken(self.path):
                self.order.append(name)

        before = len(turns._lines.get(self.path, ()))
        thread = threading.Thread(target=want, daemon=True)
        thread.start()
        self.wait_until(
            lambda: name in self.order or len(turns._lines.get(self.path, ())) > before
        )
        return thread

    def wait_until(self, seen):
        deadline = time.monotonic() + PATIENCE
        while not seen():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)

    def start_process(self):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _OTHER, f"{self.path}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual("comes\n", process.stdout.readline())
        return process

    def is_waiting(self, process):
        """Tell whether a process waits for somebody else's lock."""
        waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return any("->" in line and f"{process.pid}" in line for line in waiting)

    def test_threads_have_it_in_the_order_in_which_they_came(self):
        with turns.taken(self.path):
            threads = [self.begin(number) for number in range(20)]
            self.assertEqual([], self.order)
        for each in threads:
            each.join(PATIENCE)
        self.assertEqual(list(range(20)), self.order)

    def test_an_accident_of_its_holder_frees_it(self):
        with self.assertRaises(ZeroDivisionError), turns.taken(self.path):
            raise ZeroDivisionError
        self.begin("next").join(PATIENCE)
        self.assertEqual(["next"], self.order)
        self.assertEqual({}, turns._lines)

    def test_it_is_free_while_nobody_has_it(self):
        self.assertTrue(turns.is_free(self.path))
        with turns.taken(self.path):
            self.assertFalse(turns.is_free(self.path))
            self.assertTrue(turns.is_free(self.path.with_name("two")))
        self.assertTrue(turns.is_free(self.path))

    def test_it_is_not_free_while_another_process_has_it_and_free_when_that_is_killed(self):
        other = self.start_process()
        self.assertEqual("has it\n", other.stdout.readline())
        self.assertFalse(turns.is_free(self.path))
        waiting = self.begin("we")
        other.kill()
        waiting.join(PATIENCE)
        self.assertEqual(["we"], self.order)
        self.assertTrue(turns.is_free(self.path))

    def test_another_process_has_it_before_our_own_threads_that_came_later(self):
        with turns.taken(self.path):
            other = self.start_process()
            self.wait_until(lambda: self.is_waiting(other))
            threads = [self.begin(number) for number in range(5)]
        self.assertEqual("has it\n", other.stdout.readline())
        self.assertEqual([], self.order)
        other.kill()
        for each in threads:
            each.join(PATIENCE)
        self.assertEqual(list(range(5)), self.order)

    def test_a_forgotten_one_leaves_no_file(self):
        with turns.taken(self.path):
            self.assertTrue(list(self.path.parent.iterdir()))
            turns.forget(self.path)
        self.assertEqual([], list(self.path.parent.iterdir()))
        turns.forget(self.path)

# SPDX-License-Identifier: Apache-2.0
"""Locks between threads and processes of one machine."""

import contextlib
from pathlib import Path
import signal
import subprocess
import sys
import threading
import time
import unittest

from attachd.manager.ha import volume_lock
from attachd.tests.fixtures import lifetime
from attachd.tests.wait import TIMEOUT, wait_until

_OTHER = f"""
import sys
from attachd.manager.ha import volume_lock
sys.stdout.write("comes\\n")
sys.stdout.flush()
with volume_lock.acquire(sys.argv[1], {TIMEOUT}, {TIMEOUT}):
    sys.stdout.write("has it\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


class VolumeLockTest(unittest.TestCase):
    """One lock."""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self) / "locks"
        self.path = f"{self.folder}/one"
        self.order = []

    def begin(self, name):
        """Start a thread that acquires the lock, and return once it is queued."""

        def want():
            with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
                self.order.append(name)

        before = len(volume_lock._waiters.get(self.path, ()))
        thread = threading.Thread(target=want, daemon=True)
        thread.start()
        wait_until(
            lambda: name in self.order or len(volume_lock._waiters.get(self.path, ())) > before,
            interval=0.001,
        )
        return thread

    def start_process(self):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _OTHER, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual("comes\n", process.stdout.readline())
        return process

    def is_waiting(self, process):
        """Return whether a process waits for a file lock."""
        waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return any("->" in line and f"{process.pid}" in line for line in waiting)

    def test_threads_acquire_in_order_of_arrival(self):
        with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
            threads = [self.begin(number) for number in range(20)]
            self.assertEqual([], self.order)
        for each in threads:
            each.join(TIMEOUT)
        self.assertEqual(list(range(20)), self.order)

    def test_lock_is_released_after_exception(self):
        with (
            self.assertRaises(ZeroDivisionError),
            volume_lock.acquire(self.path, TIMEOUT, TIMEOUT),
        ):
            raise ZeroDivisionError
        self.begin("next").join(TIMEOUT)
        self.assertEqual(["next"], self.order)
        self.assertEqual({}, volume_lock._waiters)

    def test_is_free_without_holder(self):
        self.assertTrue(volume_lock.is_free(self.path))
        with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
            self.assertFalse(volume_lock.is_free(self.path))
            self.assertTrue(volume_lock.is_free(f"{self.folder}/two"))
        self.assertTrue(volume_lock.is_free(self.path))

    def test_is_free_is_false_until_other_process_is_killed(self):
        other = self.start_process()
        self.assertEqual("has it\n", other.stdout.readline())
        self.assertFalse(volume_lock.is_free(self.path))
        waiting = self.begin("we")
        other.kill()
        waiting.join(TIMEOUT)
        self.assertEqual(["we"], self.order)
        self.assertTrue(volume_lock.is_free(self.path))

    def test_other_process_acquires_before_later_threads(self):
        with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
            other = self.start_process()
            wait_until(lambda: self.is_waiting(other))
            threads = [self.begin(number) for number in range(5)]
        self.assertEqual("has it\n", other.stdout.readline())
        self.assertEqual([], self.order)
        other.kill()
        for each in threads:
            each.join(TIMEOUT)
        self.assertEqual(list(range(5)), self.order)

    def test_acquire_after_timeout_leaves_queue(self):
        with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
            with (
                self.assertRaises(volume_lock.LockTimeout),
                volume_lock.acquire(self.path, 0.05, TIMEOUT),
            ):
                self.fail("two at once")
            next_one = self.begin("next")
            self.assertEqual([], self.order)
        next_one.join(TIMEOUT)
        self.assertEqual(["next"], self.order)
        self.assertEqual({}, volume_lock._waiters)

    def start_sleeping_process(self):
        """Return a process that holds the lock and is suspended."""
        other = self.start_process()
        self.assertEqual("has it\n", other.stdout.readline())
        other.send_signal(signal.SIGSTOP)
        return other

    def waiting_threads(self):
        return [each for each in threading.enumerate() if each.name == "volume-lock"]

    def test_acquire_with_suspended_holder_continues_after_timeout(self):
        self.start_sleeping_process()
        started_at = time.monotonic()
        # The suspended holder never releases it, so each limit is reached.
        with volume_lock.acquire(self.path, TIMEOUT, 0.2):
            self.assertGreaterEqual(time.monotonic() - started_at, 0.2)

    def test_acquire_at_gate_with_suspended_holder_continues_after_timeout(self):
        self.start_sleeping_process()
        third = self.start_process()
        wait_until(lambda: self.is_waiting(third))
        # The suspended holder never releases it, so each limit is reached.
        with volume_lock.acquire(self.path, TIMEOUT, 0.2):
            self.assertFalse(volume_lock.is_free(f"{self.path}.gate"))

    def test_lock_of_timed_out_waiter_is_free_after_holder_ends(self):
        sleeper = self.start_sleeping_process()
        before = self.open_files()
        for _ in range(3):
            # The suspended holder never releases it, so each limit is reached.
            with volume_lock.acquire(self.path, TIMEOUT, 0.01):
                pass
        self.assertFalse(volume_lock.is_free(self.path))
        self.assertEqual(before + 3, self.open_files())
        sleeper.kill()
        wait_until(lambda: not self.waiting_threads())
        self.assertTrue(volume_lock.is_free(self.path))
        self.assertEqual(before, self.open_files())
        with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
            self.assertFalse(volume_lock.is_free(self.path))

    def open_files(self):
        """Return how many lock files this process has open."""
        count = 0
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += each.readlink().is_relative_to(self.folder)
        return count

    def test_acquire_leaves_no_file_open(self):
        with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
            self.assertEqual(1, self.open_files(), "the gate is left behind us")
            waiting = [self.begin(number) for number in range(3)]
        for each in waiting:
            each.join(TIMEOUT)
        self.assertEqual(0, self.open_files())

    def test_delete_files_leaves_no_file(self):
        with volume_lock.acquire(self.path, TIMEOUT, TIMEOUT):
            self.assertTrue(list(self.folder.iterdir()))
            volume_lock.delete_files(self.path)
        self.assertEqual([], list(self.folder.iterdir()))
        volume_lock.delete_files(self.path)

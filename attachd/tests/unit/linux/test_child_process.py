# SPDX-License-Identifier: Apache-2.0
"""Calls in processes of their own, made by a process that is forked from this one."""

import contextlib
import errno
import fcntl
import functools
import os
from pathlib import Path
import signal
import subprocess
import unittest
from unittest import mock
from unittest.mock import DEFAULT

from attachd import exception
from attachd.agent.journal import Journal
from attachd.linux import child_process
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.wait import TIMEOUT, wait_until


def _open_fifo(fifo, *, with_command=False):
    """Hang, and let a command hang too, in a process group of its own."""
    if with_command:
        subprocess.Popen(["cat", fifo], process_group=0)
    fifo.with_name("pid").write_text(f"{os.getpid()}")
    fifo.open("rb")


def _busy():
    raise exception.DeviceBusy(device="/dev/sdb", users="process 7")


def _is_alive(pid):
    return Path(f"/proc/{pid}").exists()


def _has_reader(fifo):
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


class ForkerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self)
        self.lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR)
        self.addCleanup(os.close, self.lock)
        self.fifo = self.folder / "fifo"
        os.mkfifo(self.fifo)

    def forker(self, timeout=TIMEOUT):
        forker = child_process.Forker(timeout)
        self.addCleanup(self.end_reader)
        self.addCleanup(forker.wait)
        self.addCleanup(forker.close)
        return forker

    def end_reader(self):
        """End the command of a call that hangs: it has the output of the test runner."""
        with contextlib.suppress(OSError):  # None reads.
            os.close(os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK))

    def pid(self):
        path = self.folder / "pid"
        return int(wait_until(lambda: path.exists() and path.read_text()))

    def test_call_returns_result_of_another_process(self):
        forker = self.forker()
        pids = {forker.call(os.getpid, self.lock) for _ in range(3)}
        self.assertEqual(3, len(pids - {os.getpid(), forker.pid}))

    def test_call_raises_errors_of_the_host(self):
        forker = self.forker()
        with self.assertRaisesRegex(exception.DeviceBusy, "process 7"):
            forker.call(_busy, self.lock)
        with self.assertRaisesRegex(exception.HostError, "Unexpected.*ZeroDivisionError"):
            forker.call(functools.partial(divmod, 1, 0), self.lock)

    def test_call_that_hangs_is_killed_with_its_commands(self):
        forker = self.forker(timeout=1)  # The call hangs.
        hanging = functools.partial(_open_fifo, self.fifo, with_command=True)
        with (
            self.assertLogs("attachd.linux.child_process", "WARNING"),
            self.assertRaisesRegex(exception.HostError, "did not end within 1 s"),
        ):
            forker.call(hanging, self.lock)
        self.assertFalse(_is_alive(self.pid()))
        wait_until(lambda: not _has_reader(self.fifo))
        self.assertEqual("x", forker.call(functools.partial(str, "x"), self.lock))

    def test_process_that_does_not_end_keeps_the_lock_of_its_volume(self):
        forker = self.forker(timeout=1)  # The call hangs.
        journal = Journal(self.folder)
        self.shorten_waits()
        with (
            mock.patch("attachd.linux.child_process._send_kill"),
            self.assertRaisesRegex(exception.HostHangs, "restart the host"),
            journal.volume_lock("v"),
        ):
            forker.call(functools.partial(_open_fifo, self.fifo), journal.held_lock())
        self.assertIsNone(journal.held_lock())
        with self.assertRaises(exception.LocalConflict), journal.volume_lock("v"):
            pass
        os.close(os.open(self.fifo, os.O_WRONLY))
        with journal.volume_lock("v", timeout=TIMEOUT):
            pass

    def test_command_that_does_not_end_keeps_the_lock_of_its_volume(self):
        forker = self.forker(timeout=1)  # The call hangs.
        journal = Journal(self.folder)
        self.shorten_waits()
        hanging = functools.partial(_open_fifo, self.fifo, with_command=True)
        with (
            mock.patch("attachd.linux.child_process._send_kill", self.kill_without_commands),
            self.assertRaises(exception.HostHangs),
            journal.volume_lock("v"),
        ):
            forker.call(hanging, journal.held_lock())
        wait_until(lambda: not _is_alive(self.pid()))
        with self.assertRaises(exception.LocalConflict), journal.volume_lock("v"):
            pass
        os.close(os.open(self.fifo, os.O_WRONLY))
        with journal.volume_lock("v", timeout=TIMEOUT):
            pass

    def shorten_waits(self):
        for name in ("KILL_TIMEOUT", "_LOCK_INTERVAL"):
            self.enterContext(mock.patch.object(child_process, name, 0.1))

    def kill_without_commands(self, pid):
        # It is listed, and may be gone by now, as for the function that this one replaces.
        if pid == self.pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def test_process_that_cannot_be_started_fails_its_call_only(self):
        with mock.patch("os.fork", wraps=os.fork) as fork:
            fork.side_effect = [DEFAULT, OSError(errno.EAGAIN, "no processes left"), DEFAULT]
            forker = self.forker()
        with self.assertRaisesRegex(exception.HostError, "could not be started"):
            forker.call(os.getpid, self.lock)
        self.assertEqual("x", forker.call(functools.partial(str, "x"), self.lock))

    def test_killed_process_is_reported(self):
        forker = self.forker()
        with self.assertRaisesRegex(exception.HostError, "was killed"):
            forker.call(functools.partial(signal.raise_signal, signal.SIGKILL), self.lock)

    def test_children_end_with_the_parent(self):
        if (parent := os.fork()) == 0:
            try:
                forker = child_process.Forker(TIMEOUT)
                forker.call(functools.partial(_open_fifo, self.fifo), self.lock)
            finally:
                os._exit(1)
        pid = self.pid()
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        wait_until(lambda: not _is_alive(pid))

    def test_call_after_the_end_of_the_forker_is_refused(self):
        forker = child_process.Forker(TIMEOUT)
        os.kill(forker.pid, signal.SIGKILL)
        forker.wait()
        with self.assertRaisesRegex(exception.HostError, "Restart it"):
            forker.call(os.getpid, self.lock)
        forker.close()
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

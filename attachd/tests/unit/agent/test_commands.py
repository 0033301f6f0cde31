# SPDX-License-Identifier: Apache-2.0
"""Commands of a host: they end in time, and daemons do not."""

import fcntl
import functools
import os
from pathlib import Path
import signal
import unittest

import fixtures

from attachd import exception
from attachd.agent import commands
from attachd.agent.connectors.qemu import processes
from attachd.tests.wait import TIMEOUT, wait_until


class RunTest(unittest.TestCase):
    """What comes back of a command."""

    def test_output_is_returned(self):
        self.assertEqual("a b\n", commands.run("echo", "a b"))

    def test_a_failure_says_which_command_and_why(self):
        with self.assertRaisesRegex(exception.HostError, "'ls /nowhere-at-all' failed: .*No such"):
            commands.run("ls", "/nowhere-at-all")
        with self.assertRaisesRegex(exception.HostError, "exit code 1"):
            commands.run("false")

    def test_a_missing_command_is_named(self):
        with self.assertRaisesRegex(exception.HostError, "no-such-command could not be run"):
            commands.run("no-such-command")

    def test_a_command_that_hangs_is_killed(self):
        with self.assertRaisesRegex(exception.HostError, "'sleep 600.5' did not end in 0.1 s"):
            commands.run("sleep", "600.5", seconds=0.1)  # slow, it does not end sooner
        found = functools.partial(
            processes.find, Path.cwd(), lambda line: line == ("sleep", "600.5")
        )
        wait_until(lambda: not found())

    def test_only_the_lock_is_kept_open(self):
        lock, low = os.pipe()
        # The command opens a folder, with a low number.
        other = fcntl.fcntl(low, fcntl.F_DUPFD, 100)
        for each in (lock, low, other):
            self.addCleanup(os.close, each)
        kept = commands.run("ls", "/proc/self/fd", keeping=[lock]).split()
        self.assertIn(f"{lock}", kept)
        self.assertNotIn(f"{other}", kept)


class StartTest(fixtures.TestWithFixtures):
    """Daemons."""

    def test_a_daemon_is_nobodys_child_and_has_none_of_our_files(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_inheritable(writing, True)
        os.mkfifo(folder / "fifo")
        script = "echo $$ > pid.new; echo said; mv pid.new pid; read forever < fifo"
        commands.start("sh", "-c", script, folder=folder, log=folder / "log")
        wait_until((folder / "pid").exists)
        # Not before: until it is mv, the shell's child has the same command line.
        (found,) = processes.find(folder, lambda line: script in line)
        self.addCleanup(found.end, signal.SIGKILL, TIMEOUT)
        number = int((folder / "pid").read_text())
        self.assertEqual("said\n", (folder / "log").read_text())
        self.assertEqual(0o600, (folder / "log").stat().st_mode & 0o777)
        self.assertEqual(number, os.getsid(number))
        self.assertRaises(ChildProcessError, os.waitpid, number, os.WNOHANG)
        # Nobody but us has the other end: a daemon that had it would keep the pipe open.
        os.close(writing)
        self.assertEqual(b"", os.read(reading, 1))

    def test_what_cannot_be_started_is_said(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        with self.assertRaisesRegex(exception.HostError, "could not be started"):
            commands.start("true", folder=folder / "nowhere", log=folder / "log")


class MissingTest(unittest.TestCase):
    """Which commands there are."""

    def test_the_missing_are_named_with_their_packages(self):
        self.assertEqual(
            ["no-such (package some)"], commands.missing({"sh": "dash", "no-such": "some"})
        )

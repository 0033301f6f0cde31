# SPDX-License-Identifier: Apache-2.0
"""Commands of a host: they end in time, and daemons do not."""

import fcntl
import functools
import itertools
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import processes
from attachd.linux import commands
from attachd.tests.fixtures import lifetime
from attachd.tests.wait import TIMEOUT, wait_until


class RunTest(unittest.TestCase):
    """What comes back of a command."""

    def test_output_is_returned(self):
        self.assertEqual("a b\n", commands.run("echo", "a b"))

    def test_input_reaches_command_also_after_progress(self):
        self.assertEqual("a b", commands.run("cat", stdin="a b"))
        steps = itertools.count()
        script = "sleep 0.3; cat"
        # It always gets more time, as there is progress.
        result = commands.run(
            "sh", "-c", script, timeout=0.1, stdin="a b", progress=lambda: next(steps)
        )
        self.assertEqual("a b", result)

    def test_failure_names_command_and_reason(self):
        with self.assertRaisesRegex(exception.HostError, "'ls /nowhere-at-all' failed: .*No such"):
            commands.run("ls", "/nowhere-at-all")
        with self.assertRaisesRegex(exception.HostError, "exit code 1"):
            commands.run("false")

    def test_missing_command_is_named(self):
        with self.assertRaisesRegex(exception.HostError, "no-such-command could not be run"):
            commands.run("no-such-command")

    def test_hanging_command_is_killed(self):
        with self.assertRaisesRegex(exception.HostError, "'sleep 600.5' did not end in 0.1 s"):
            commands.run("sleep", "600.5", timeout=0.1)  # slow, it does not end sooner
        found = functools.partial(
            processes.find, Path.cwd(), lambda line: line == ("sleep", "600.5")
        )
        wait_until(lambda: not found())

    def test_only_lock_is_inherited(self):
        lock, low = os.pipe()
        # The command opens a folder, with a low number.
        other = fcntl.fcntl(low, fcntl.F_DUPFD, 100)
        for item in (lock, low, other):
            self.addCleanup(os.close, item)
        kept = commands.run("ls", "/proc/self/fd", pass_fds=[lock]).split()
        self.assertIn(f"{lock}", kept)
        self.assertNotIn(f"{other}", kept)


class StartTest(fixtures.TestWithFixtures):
    """Daemons."""

    def test_daemon_has_no_parent_and_no_open_files_of_caller(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_inheritable(writing, True)
        os.mkfifo(folder / "fifo")
        script = "echo $$ > pid.new; echo said; mv pid.new pid; read forever < fifo"
        commands.start_daemon("sh", "-c", script, directory=folder, log=folder / "log")
        wait_until((folder / "pid").exists)
        # Not before: until it is mv, the shell's child has the same command line.
        (found,) = processes.find(folder, lambda line: script in line)
        self.addCleanup(found.end, signal.SIGKILL, TIMEOUT)
        number = int((folder / "pid").read_text())
        self.assertEqual("said\n", (folder / "log").read_text())
        self.assertEqual(0o600, (folder / "log").stat().st_mode & 0o777)
        self.assertEqual(number, os.getsid(number))
        self.assertRaises(ChildProcessError, os.waitpid, number, os.WNOHANG)
        # Only this process has the other end: a daemon that had it would keep the pipe open.
        os.close(writing)
        self.assertEqual(b"", os.read(reading, 1))

    def test_start_failure_raises_with_reason(self):
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        with self.assertRaisesRegex(exception.HostError, "could not be started"):
            commands.start_daemon("true", directory=folder / "nowhere", log=folder / "log")


class MissingTest(unittest.TestCase):
    """Which commands there are."""

    def test_missing_commands_are_named_with_packages(self):
        self.assertEqual(
            ["no-such (package some)"], commands.list_missing({"sh": "dash", "no-such": "some"})
        )


_CALLER = """
import sys
from attachd.linux import commands
started = lambda: print("waiting", flush=True)
commands.run_long(["sh", "-c", "echo $$ > $0; exec sleep 600", sys.argv[1]], started)
"""


class ExecuteTest(unittest.TestCase):
    """An answer, or a HostError."""

    def test_exit_code_is_returned(self):
        for run in (lambda words: commands.execute(words, TIMEOUT), self.long):
            outcome = run(["sh", "-c", "echo out; echo in two >&2; echo lines >&2; exit 3"])
            self.assertEqual(commands.CommandResult(3, "out\n", "in two lines"), outcome)

    def test_missing_command_is_named(self):
        for run in (lambda words: commands.execute(words, TIMEOUT), self.long):
            with self.assertRaisesRegex(exception.HostError, "no-such-command could not be run"):
                run(["no-such-command"])

    def test_command_over_timeout_is_killed(self):
        with self.assertRaisesRegex(exception.HostError, r"'sleep 600' did not end in 0\.1 s"):
            commands.execute(["sleep", "600"], 0.1)  # slow, it does not end sooner

    def test_command_with_progress_is_not_killed(self):
        windows = iter(range(3))
        progress = functools.partial(next, windows, "end")
        end = lifetime.temp_dir(self) / "end"
        counting = itertools.count()
        line = ("sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.01; done; echo a', f"{end}")

        def go_on():
            if (window := next(counting)) == 2:
                end.touch()
            return window

        # Slow or not, it ends only after some timeouts.
        self.assertEqual("a\n", commands.run(*line, timeout=0.1, progress=go_on))
        with self.assertRaisesRegex(exception.HostError, "did not end in 0.1 s"):
            commands.run("sleep", "600.5", timeout=0.1, progress=progress)  # it does not end
        self.assertEqual([], [*windows])

    def test_execute_killed_command_does_not_wait_for_its_children(self):
        note = lifetime.temp_dir(self) / "group"
        script = 'sleep 600 & echo $$ > "$0.new"; mv "$0.new" "$0"; wait'
        real = subprocess.Popen.communicate

        def communicate(process, timeout, **_input):
            wait_until(note.exists)
            return real(process, timeout=timeout / 100)

        with (
            mock.patch.object(subprocess.Popen, "communicate", communicate),
            self.assertRaisesRegex(exception.HostError, "did not end in 3 s"),
        ):
            commands.execute(["sh", "-c", script, str(note)], 3)
        # It is still there, so execute() has not waited for it.
        os.killpg(int(note.read_text()), signal.SIGKILL)

    def test_command_without_waiting_caller_is_killed(self):
        def give_up():
            raise KeyboardInterrupt

        real = subprocess.Popen.kill
        with (
            mock.patch.object(subprocess.Popen, "kill", autospec=True, side_effect=real) as kill,
            self.assertRaises(KeyboardInterrupt),
        ):
            commands.run_long(["sleep", "600"], give_up)
        (process,) = kill.call_args.args
        self.assertEqual(-signal.SIGKILL, process.returncode)

    def test_command_has_english_locale_and_no_input(self):
        script = "import os, sys; print(os.environ['LC_ALL'], sys.stdin.read() == '')"
        self.assertEqual(
            "C True\n", commands.execute([sys.executable, "-c", script], TIMEOUT).stdout
        )

    def test_which_finds_only_existing_commands(self):
        self.assertTrue(commands.which("sh"))
        self.assertIsNone(commands.which("no-such-command"))

    @staticmethod
    def long(words):
        return commands.run_long(words, lambda: None)


class RunLongTest(unittest.TestCase):
    """Who runs something long is killed."""

    def test_command_gets_files_under_their_numbers(self):
        with tempfile.TemporaryFile() as file:
            number = file.fileno()
            line = ["sh", "-c", f"echo written > /proc/self/fd/{number}"]
            ended = commands.run_long(line, lambda: None, pass_fds=[number])
            self.assertEqual(0, ended.exit_code, ended.stderr)
            file.seek(0)
            self.assertEqual(b"written\n", file.read())

    def test_command_ends_with_its_parent(self):
        folder = lifetime.temp_dir(self)
        caller = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _CALLER, str(folder / "pid")],
            stdout=subprocess.PIPE,
        )
        self.addCleanup(caller.stdout.close)
        self.addCleanup(caller.wait)
        self.addCleanup(caller.kill)
        caller.stdout.readline()
        # The caller has waited for a second, which the command may have spent on its start.
        note = folder / "pid"
        wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
        process = int(note.read_text())
        self.addCleanup(self.end, process)
        self.assertTrue(self.lives(process))
        caller.kill()
        wait_until(lambda: not self.lives(process))

    def lives(self, process):
        """Whether it runs, and is still the one that was started."""
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
            return state != "Z" and "sleep" in Path(f"/proc/{process}/cmdline").read_text()
        except OSError:
            return False

    def end(self, process):
        if self.lives(process):
            os.kill(process, signal.SIGKILL)

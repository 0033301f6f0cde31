# SPDX-License-Identifier: Apache-2.0
"""Commands of a host: what they answer, and that none outlives who runs it."""

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
from attachd.agent import outcomes
from attachd.tests.wait import TIMEOUT, wait_until

_CALLER = """
import sys
from attachd.agent import outcomes
told = lambda: print("waiting", flush=True)
outcomes.run_long(["sh", "-c", "echo $$ > $0; exec sleep 600", sys.argv[1]], told)
"""


class RunTest(unittest.TestCase):
    """An answer, or a HostError."""

    def test_an_exit_code_is_an_answer(self):
        for run in (lambda words: outcomes.run(words, TIMEOUT), self.long):
            outcome = run(["sh", "-c", "echo out; echo in two >&2; echo lines >&2; exit 3"])
            self.assertEqual(outcomes.Outcome(3, "out\n", "in two lines"), outcome)

    def test_a_missing_command_is_named(self):
        for run in (lambda words: outcomes.run(words, TIMEOUT), self.long):
            with self.assertRaisesRegex(exception.HostError, "no-such-command could not be run"):
                run(["no-such-command"])

    def test_what_takes_too_long_is_killed(self):
        with self.assertRaisesRegex(exception.HostError, r"'sleep 600' did not end in 0\.1 s"):
            outcomes.run(["sleep", "600"], 0.1)  # slow, it does not end sooner

    def test_nobody_waits_for_what_a_killed_command_has_left_behind(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        note = Path(folder.name) / "group"
        script = 'sleep 600 & echo $$ > "$0.new"; mv "$0.new" "$0"; wait'
        real = subprocess.Popen.communicate

        def communicate(process, timeout):
            wait_until(note.exists)
            return real(process, timeout=timeout / 100)

        with (
            mock.patch.object(subprocess.Popen, "communicate", communicate),
            self.assertRaisesRegex(exception.HostError, "did not end in 3 s"),
        ):
            outcomes.run(["sh", "-c", script, str(note)], 3)
        # It is still there, so nobody has waited for it.
        os.killpg(int(note.read_text()), signal.SIGKILL)

    def test_what_is_waited_for_no_longer_is_killed(self):
        def give_up():
            raise KeyboardInterrupt

        real = subprocess.Popen.kill
        with (
            mock.patch.object(subprocess.Popen, "kill", autospec=True, side_effect=real) as kill,
            self.assertRaises(KeyboardInterrupt),
        ):
            outcomes.run_long(["sleep", "600"], give_up)
        (process,) = kill.call_args.args
        self.assertEqual(-signal.SIGKILL, process.returncode)

    def test_messages_are_in_english_and_nothing_is_asked(self):
        script = "import os, sys; print(os.environ['LC_ALL'], sys.stdin.read() == '')"
        self.assertEqual("C True\n", outcomes.run([sys.executable, "-c", script], TIMEOUT).output)

    def test_commands_of_root_are_found(self):
        self.assertTrue(outcomes.which("sh"))
        self.assertIsNone(outcomes.which("no-such-command"))

    @staticmethod
    def long(words):
        return outcomes.run_long(words, lambda: None)


class DeathTest(unittest.TestCase):
    """Who runs something long is killed."""

    def test_the_command_ends_too(self):
        folder = self.useTemporary()
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

    def useTemporary(self):  # noqa: N802  as fixtures calls it
        temporary = fixtures.TempDir()
        temporary.setUp()
        self.addCleanup(temporary.cleanUp)
        return Path(temporary.path)

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

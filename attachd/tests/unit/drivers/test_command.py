# SPDX-License-Identifier: Apache-2.0
"""Running of tools with a timeout and a minimal environment."""

import os
from pathlib import Path
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import command
from attachd.linux import commands
from attachd.tests.wait import TIMEOUT


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


class RunTest(unittest.TestCase):
    def test_run_returns_code_output_and_errors(self):
        outcome = command.run(
            ["sh", "-c", "echo out; echo one >&2; echo two >&2; exit 3"], TIMEOUT
        )
        self.assertEqual(commands.CommandResult(3, "out\n", "one two"), outcome)

    def test_run_logs_command_without_secrets(self):
        with self.assertLogs("attachd.linux.commands", "DEBUG") as said:
            command.run(["echo", "--password", "hush"], TIMEOUT)
        self.assertRegex(said.output[0], r"Exit 0 after \d+\.\d+ s: echo --password \*\*\*")

    def test_run_uses_no_shell(self):
        self.assertEqual("$(id) ; `id`\n", command.run(["echo", "$(id) ; `id`"], TIMEOUT).stdout)

    def test_hanging_tool_is_killed_after_timeout(self):
        with self.assertRaisesRegex(
            exception.BackendUnreachable, "sleep.* did not end in 0.1 s"
        ) as caught:
            command.run(["sleep", "600.25"], 0.1)  # slow, it does not end sooner
        running = Path("/proc").glob("[0-9]*/cmdline")
        self.assertNotIn(b"sleep\x00600.25\x00", [_read(item) for item in running])
        self.assertFalse(caught.exception.final)

    def test_missing_tool_raises_error_naming_it(self):
        with self.assertRaisesRegex(exception.BackendError, "no-such-tool") as caught:
            command.run(["no-such-tool"], TIMEOUT)
        self.assertFalse(caught.exception.final)

    def test_argument_with_null_byte_raises_backend_error(self):
        with self.assertRaises(exception.BackendError):
            command.run(["echo", "a\0b"], TIMEOUT)

    def test_invalid_utf8_output_is_replaced(self):
        self.assertEqual("\ufffd", command.run(["printf", r"\377"], TIMEOUT).stdout)

    def test_tool_does_not_inherit_environment(self):
        with mock.patch.dict(os.environ, {"OUR_SECRET": "x"}):
            printed = command.run(["env"], TIMEOUT, {"THEIRS": "y"}).stdout
        self.assertNotIn("OUR_SECRET", printed)
        self.assertIn("THEIRS=y", printed)
        self.assertIn("LC_ALL=C\n", printed)

    def test_tool_is_not_searched_in_working_directory(self):
        with mock.patch.dict(os.environ, clear=True):
            path = command.run(["sh", "-c", "echo $PATH"], TIMEOUT).stdout.strip()
        self.assertNotIn("", path.split(":"))

    def test_tool_runs_in_own_process_group(self):
        group = command.run(
            ["sh", "-c", "ps -o pgid= -p $$ || cut -d' ' -f5 /proc/$$/stat"], TIMEOUT
        )
        self.assertNotEqual(os.getpgrp(), int(group.stdout))

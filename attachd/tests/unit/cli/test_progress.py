# SPDX-License-Identifier: Apache-2.0
"""Where progress is told, and how."""

import io
import logging
import unittest

from attachd.cli import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ProgressTest(unittest.TestCase):
    def test_on_a_terminal_a_line_changes_and_is_gone_at_the_end(self):
        stream = Terminal()
        with progress.Progress(stream) as tell:
            tell("Reserving")
            tell("Connecting")
        clear = "\r\x1b[2K"
        self.assertEqual(f"{clear}Reserving{clear}Connecting{clear}", stream.getvalue())

    def test_a_line_is_never_longer_than_the_terminal(self):
        for length in (79, 80, 81, 1000):
            stream = Terminal()
            with progress.Progress(stream) as tell:
                tell(f"Looking at {'x' * length}: 32%")
            line = stream.getvalue().split("\x1b[2K")[1].rstrip("\r")
            self.assertLess(len(line), 80)
            self.assertRegex(line, r"\ALooking at x+\.\.\.x+: 32%\Z")

    def test_a_line_is_gone_after_an_error(self):
        stream = Terminal()
        with self.assertRaises(ValueError), progress.Progress(stream) as tell:
            tell("Reserving")
            raise ValueError
        self.assertTrue(stream.getvalue().endswith("\r\x1b[2K"))

    def test_elsewhere_it_is_logged(self):
        stream = io.StringIO()
        with (
            self.assertLogs("attachd.cli.progress", logging.INFO) as logged,
            progress.Progress(stream) as tell,
        ):
            tell("Reserving")
        self.assertEqual("", stream.getvalue())
        self.assertEqual(["Reserving"], [each.getMessage() for each in logged.records])

    def test_with_v_it_is_logged_on_a_terminal_too(self):
        stream = Terminal()
        with (
            self.assertLogs("attachd.cli.progress", logging.INFO),
            progress.Progress(stream) as tell,
        ):
            tell("Reserving")
        self.assertEqual("", stream.getvalue())

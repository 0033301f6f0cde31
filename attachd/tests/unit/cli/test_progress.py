# SPDX-License-Identifier: Apache-2.0
"""Progress on terminals and in logs."""

import io
import logging
import unittest

from attachd.cli import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ProgressTest(unittest.TestCase):
    def test_progress_on_terminal_rewrites_one_line_and_clears_it(self):
        stream = Terminal()
        with progress.Progress(stream) as report:
            report("Reserving")
            report("Connecting")
        clear = "\r\x1b[2K"
        self.assertEqual(f"{clear}Reserving{clear}Connecting{clear}", stream.getvalue())

    def test_progress_line_is_cut_to_terminal_width(self):
        for length in (79, 80, 81, 1000):
            stream = Terminal()
            with progress.Progress(stream) as report:
                report(f"Looking at {'x' * length}: 32%")
            line = stream.getvalue().split("\x1b[2K")[1].rstrip("\r")
            self.assertLess(len(line), 80)
            self.assertRegex(line, r"\ALooking at x+\.\.\.x+: 32%\Z")

    def test_progress_line_is_cleared_after_error(self):
        stream = Terminal()
        with self.assertRaises(ValueError), progress.Progress(stream) as report:
            report("Reserving")
            raise ValueError
        self.assertTrue(stream.getvalue().endswith("\r\x1b[2K"))

    def test_progress_without_terminal_is_logged(self):
        stream = io.StringIO()
        with (
            self.assertLogs("attachd.cli.progress", logging.INFO) as logged,
            progress.Progress(stream) as report,
        ):
            report("Reserving")
        self.assertEqual("", stream.getvalue())
        self.assertEqual(["Reserving"], [record.getMessage() for record in logged.records])

    def test_progress_with_verbose_on_terminal_is_logged(self):
        stream = Terminal()
        with (
            self.assertLogs("attachd.cli.progress", logging.INFO),
            progress.Progress(stream) as report,
        ):
            report("Reserving")
        self.assertEqual("", stream.getvalue())

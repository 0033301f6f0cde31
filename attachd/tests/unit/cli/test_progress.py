# SPDX-License-Identifier: Apache-2.0
"""Progress on terminals and in logs."""

import io
import logging
import threading
import unittest
from unittest import mock

from attachd.cli import progress
from attachd.tests.wait import TIMEOUT


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


class LongStepTest(unittest.TestCase):
    """A step that takes long."""

    def setUp(self):
        super().setUp()
        for name in ("DELAY", "INTERVAL"):
            self.enterContext(mock.patch.object(progress, name, 0.01))

    def run_step(self, stream, advice_after=3600.0, **options):
        """Run a step until it was shown three times, or its advice was logged."""
        shown, again = [], threading.Event()

        def describe():
            shown.append(None)
            if len(shown) == 3:
                again.set()
            return "Waiting for node-1"

        with (
            mock.patch.object(progress, "ADVICE_AFTER", advice_after),
            progress.Progress(stream, "Fence it.", **options) as report,
        ):
            report(describe)
            self.assertTrue(again.wait(TIMEOUT))

    def test_terminal_shows_how_long_it_takes(self):
        stream = Terminal()
        self.run_step(stream, delay=0.01)
        self.assertIn("Waiting for node-1 (0s)", stream.getvalue())

    def test_advice_is_logged_once_with_the_begin(self):
        stream = io.StringIO()
        with self.assertLogs("attachd.cli.progress", logging.WARNING) as logged:
            self.run_step(stream, advice_after=0.0, delay=0.01)
        (record,) = logged.records
        self.assertRegex(
            record.getMessage(), r"\AWaiting for node-1 since \d\d:\d\d:\d\d UTC. Fence it.\Z"
        )

    def test_step_that_ends_soon_is_not_shown(self):
        stream, step = Terminal(), mock.Mock()
        with progress.Progress(stream, "Fence it.", delay=3600.0) as report:
            report(step)
        step.assert_not_called()
        self.assertEqual("\r\x1b[2K", stream.getvalue())

# SPDX-License-Identifier: Apache-2.0
"""Width and colours of the output."""

import io
import os
import unittest
from unittest import mock

from attachd.cli import terminal
from attachd.tests.unit.cli.programs import Terminal


class TerminalTest(unittest.TestCase):
    def test_width_is_that_of_the_terminal(self):
        for columns, expected in ((132, 132), (0, 80)):
            size = os.terminal_size((columns, 24))
            with mock.patch.object(os, "get_terminal_size", lambda *_, size=size: size):
                self.assertEqual(expected, terminal.width(Terminal()))
        with mock.patch.object(os, "get_terminal_size", side_effect=OSError):
            self.assertEqual(80, terminal.width(Terminal()))

    def test_width_of_a_pipe_is_120(self):
        self.assertEqual(120, terminal.width(io.StringIO()))

    def test_colours_are_for_terminals_without_no_color(self):
        for stream, settings, expected in (
            (Terminal(), {"TERM": "xterm"}, True),
            (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
            (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
            (Terminal(), {"TERM": "dumb"}, False),
            (io.StringIO(), {"TERM": "xterm"}, False),
        ):
            with mock.patch.dict(os.environ, settings, clear=True):
                self.assertIs(expected, terminal.is_coloured(stream), settings)

    def test_wrong_values_depend_on_the_heading(self):
        for heading, text, expected in (
            ("Status", "error_attaching", True),
            ("Status", "attached", False),
            ("Condition", "failed since 12:00: no path", True),
            ("Condition", "degraded: one path", True),
            ("Name", "error", False),
            ("Error", "It is busy.", True),
            ("Error", "", False),
            ("Agent", "down, last report 12:00", True),
            ("Present", "False", True),
        ):
            self.assertIs(expected, terminal.is_wrong(heading, text), (heading, text))

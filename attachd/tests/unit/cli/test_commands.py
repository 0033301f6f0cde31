# SPDX-License-Identifier: Apache-2.0
"""The base of all commands."""

import argparse
import contextlib
import io
import types
import unittest

from attachd.cli import commands


class Greeting(commands.Command):
    """Say something."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument("--loud", choices=("yes", "no"))
        return parser

    def take_action(self, parsed_args):
        self.refuse("argument --loud: not today")


class CommandTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        manager = types.SimpleNamespace(sdk_connection="the cloud")
        self.command = Greeting(types.SimpleNamespace(client_manager=manager), None)
        self.parser = self.command.get_parser("attachd greet")

    def said(self, act, *arguments):
        text = io.StringIO()
        with contextlib.redirect_stderr(text), self.assertRaises(SystemExit) as ended:
            act(*arguments)
        self.assertEqual(2, ended.exception.code)
        return text.getvalue()

    def test_connection_is_that_of_client_manager(self):
        self.assertEqual("the cloud", self.command.connection)

    def test_command_requires_authentication(self):
        self.assertTrue(self.command.auth_required)

    def test_invalid_option_prints_error_and_hint(self):
        said = self.said(self.parser.parse_args, ["--loud", "maybe"])
        self.assertIn("attachd greet: argument --loud: invalid choice: 'maybe'", said)
        self.assertEqual("See 'attachd greet --help'.", said.splitlines()[1])

    def test_refused_combination_prints_error(self):
        said = self.said(self.command.take_action, argparse.Namespace())
        self.assertIn("attachd greet: argument --loud: not today", said)

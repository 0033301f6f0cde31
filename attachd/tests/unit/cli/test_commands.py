# SPDX-License-Identifier: Apache-2.0
"""What all commands have in common."""

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

    def test_the_cloud_is_where_both_programs_have_it(self):
        self.assertEqual("the cloud", self.command.connection)

    def test_openstack_is_told_that_it_has_to_log_in(self):
        self.assertTrue(self.command.auth_required)

    def test_a_wrong_option_is_told_in_two_lines(self):
        said = self.said(self.parser.parse_args, ["--loud", "maybe"])
        self.assertIn("attachd greet: argument --loud: invalid choice: 'maybe'", said)
        self.assertEqual("See 'attachd greet --help'.", said.splitlines()[1])

    def test_so_are_options_that_do_not_go_together(self):
        said = self.said(self.command.take_action, argparse.Namespace())
        self.assertIn("attachd greet: argument --loud: not today", said)

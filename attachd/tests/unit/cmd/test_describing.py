# SPDX-License-Identifier: Apache-2.0
"""attachd-manage api describe as people type it."""

import unittest

import yaml

from attachd.tests import commands


class DescribeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.command = commands.Command.of_class(cls, "attachd-manage", "attachd.cmd.manage")

    def describe(self, *arguments):
        return self.command.run("api", "describe", *arguments)

    def test_a_microversion_is_printed_in_yaml(self):
        ended = self.describe("--microversion", "3.27", "--format", "yaml")
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))
        self.assertEqual("3.27", yaml.safe_load(ended.stdout)["info"]["version"])

    def test_one_that_there_is_not_is_refused(self):
        ended = self.describe("--microversion", "3.99")
        self.assertEqual((1, ""), (ended.returncode, ended.stdout))
        self.assertIn("3.99", ended.stderr)

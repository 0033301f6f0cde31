# SPDX-License-Identifier: Apache-2.0
"""attachd-manage api describe as people type it."""

import subprocess
import sys
import unittest

import yaml

COMMAND = "import sys; from attachd.cmd.manage import main; sys.exit(main())"


def describe(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMMAND, "api", "describe", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class DescribeTest(unittest.TestCase):
    def test_a_microversion_is_printed_in_yaml(self):
        ended = describe("--microversion", "3.27", "--format", "yaml")
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))
        self.assertEqual("3.27", yaml.safe_load(ended.stdout)["info"]["version"])

    def test_one_that_there_is_not_is_refused(self):
        ended = describe("--microversion", "3.99")
        self.assertEqual((1, ""), (ended.returncode, ended.stdout))
        self.assertIn("3.99", ended.stderr)

# SPDX-License-Identifier: Apache-2.0
"""The command where its libraries are not installed, in a process of its own."""

import subprocess
import sys
import unittest

from attachd.agent.connectors import brick
from attachd.tests.fixtures import processes
from attachd.tests.wait import TIMEOUT

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
sys.argv = ["attachd", "--version"]
from attachd.cli import start
sys.exit(start.main())
"""


class StartTest(unittest.TestCase):
    def run_without(self, missing):
        return subprocess.run(
            [sys.executable, "-c", WITHOUT.format(missing=missing)],
            capture_output=True,
            check=False,
            cwd=processes.ROOT,
            text=True,
            timeout=TIMEOUT,
        )

    def test_missing_library_is_one_line(self):
        for missing in ("cliff", "openstack"):
            done = self.run_without(missing)
            said = f"attachd: {missing} is missing here: {brick.INSTALL}\n"
            self.assertEqual((1, "", said), (done.returncode, done.stdout, done.stderr))

    def test_other_import_error_shows_traceback(self):
        done = self.run_without("attachd.exception")
        self.assertEqual(1, done.returncode)
        self.assertIn("Traceback", done.stderr)

    def test_start_with_libraries_runs_program(self):
        done = self.run_without("nothing_that_is_needed")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, r"^attachd \d")

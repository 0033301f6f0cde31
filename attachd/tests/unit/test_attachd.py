# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the commands import what they need, in processes of their own."""

import signal
import subprocess
import sys
import unittest

from attachd.tests.fixtures import processes
from attachd.tests.wait import TIMEOUT

INTERRUPTED = """
import sys
from unittest import mock
class Interrupter:
    def find_spec(self, name, *_more):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupter())
sys.argv = [{program!r}]
if {terminal}:
    sys.stderr = mock.Mock(wraps=sys.stderr, isatty=lambda: True)
from {package} import main
sys.exit(main())
"""


class InterruptTest(unittest.TestCase):
    def test_interrupt_during_start_has_no_traceback_and_ends_the_line(self):
        for program, package, module in (
            ("attachd", "attachd.cli.start", "oslo_service"),
            ("attachd", "attachd.cli.start", "attachd.cli.app"),
            ("/usr/bin/attachd-manage", "attachd.cmd.manage", "oslo_service"),
            ("attachd-all-in-one", "attachd.cmd.all_in_one", "attachd.api"),
        ):
            for terminal in (False, True):
                script = INTERRUPTED.format(
                    module=module, package=package, program=program, terminal=terminal
                )
                done = subprocess.run(
                    [sys.executable, "-c", script],
                    capture_output=True,
                    check=False,
                    cwd=processes.ROOT,
                    text=True,
                    timeout=TIMEOUT,
                )
                self.assertIn(done.returncode, {130, -signal.SIGINT})
                self.assertEqual(("", "\n" if terminal else ""), (done.stdout, done.stderr))

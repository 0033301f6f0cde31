# SPDX-License-Identifier: Apache-2.0
"""What importing attachd does before anything else; for whoever changes attachd/__init__.py."""

import subprocess
import sys
import unittest


def _run(code: str) -> str:
    """Run ``code`` in a process of its own, where nothing has been imported yet."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


class PackageTest(unittest.TestCase):
    """The choice of oslo.service's backend."""

    def test_importing_any_part_selects_threads(self):
        chosen = _run(
            "import attachd.states, oslo_messaging\n"
            "from oslo_service import backend\n"
            "print(backend.get_backend_type().value)"
        )
        self.assertEqual("threading", chosen)

    def test_eventlet_patches_nothing(self):
        patched = _run(
            "import attachd.service, sys\n"
            "patcher = sys.modules.get('eventlet.patcher')\n"
            "print(patcher is not None and patcher.is_monkey_patched('thread'))"
        )
        self.assertEqual("False", patched)

    def test_a_tool_that_chose_before_can_still_read_the_options(self):
        groups = _run(
            "import oslo_messaging\n"
            "from attachd import conf\n"
            "print([group.GROUP for group in conf.GROUPS])"
        )
        self.assertIn("'api'", groups)

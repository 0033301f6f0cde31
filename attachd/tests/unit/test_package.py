# SPDX-License-Identifier: Apache-2.0
"""Effects of importing attachd."""

import subprocess
import sys
import unittest


def _run(code: str) -> str:
    """Run ``code`` in a new process, before any import."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


class PackageTest(unittest.TestCase):
    """The choice of oslo.service's backend."""

    def test_import_selects_threading_backend(self):
        chosen = _run(
            "import attachd.states, oslo_messaging\n"
            "from oslo_service import backend\n"
            "print(backend.get_backend_type().value)"
        )
        self.assertEqual("threading", chosen)

    def test_eventlet_does_not_patch_threads(self):
        patched = _run(
            "import attachd.service, sys\n"
            "patcher = sys.modules.get('eventlet.patcher')\n"
            "print(patcher is not None and patcher.is_monkey_patched('thread'))"
        )
        self.assertEqual("False", patched)

    def test_options_can_be_read_after_other_backend_was_selected(self):
        groups = _run(
            "import oslo_messaging\n"
            "from attachd import conf\n"
            "print([group.GROUP for group in conf.GROUPS])"
        )
        self.assertIn("'api'", groups)

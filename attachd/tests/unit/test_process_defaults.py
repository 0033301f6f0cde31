# SPDX-License-Identifier: Apache-2.0
"""The backend of oslo.service that processes have, each in a process of its own."""

import os
import subprocess
import sys
import unittest

from attachd.tests.unit.test_package import run_code
from attachd.tests.wait import TIMEOUT

_PRINT = """\
import sys, types
sys.modules["attachd.cli.app"] = types.SimpleNamespace(main=lambda: 0)
{code}
print({name!r})
"""


class EscapeOutputTest(unittest.TestCase):
    def test_commands_escape_what_the_encoding_lacks(self):
        name = "disk-\N{GRINNING FACE}"
        for code, encoding, expected in (
            ("import attachd.cmd.manage", "ascii", "disk-\\U0001f600"),
            ("from attachd.cli import start; start.main()", "iso-8859-1", "disk-\\U0001f600"),
            ("import attachd.cmd.manage", "utf-8", name),
        ):
            with self.subTest(code, encoding=encoding):
                done = subprocess.run(
                    [sys.executable, "-c", _PRINT.format(code=code, name=name)],
                    capture_output=True,
                    check=False,
                    encoding=encoding,
                    env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": encoding},
                    timeout=TIMEOUT,
                )
                self.assertEqual((expected, ""), (done.stdout.strip(), done.stderr))


class UseThreadsTest(unittest.TestCase):
    def test_import_of_commands_selects_threads(self):
        chosen = run_code(
            "import attachd.cmd.manage, oslo_messaging, sys\n"
            "from oslo_service import backend\n"
            "print(backend.get_backend_type().value, sys.modules['eventlet'])"
        )
        self.assertEqual("threading None", chosen)

    def test_selected_backend_is_kept(self):
        chosen = run_code(
            "from oslo_service import backend\n"
            "backend.init_backend(backend.BackendType.THREADING)\n"
            "import attachd.cmd\n"
            "print(backend.get_backend_type().value)"
        )
        self.assertEqual("threading", chosen)

    def test_program_selects_its_backend_after_import(self):
        chosen = run_code(
            "import attachd.client\n"
            "from oslo_service import backend\n"
            "backend.init_backend(backend.BackendType.THREADING)\n"
            "print(backend.get_backend_type().value)"
        )
        self.assertEqual("threading", chosen)

    def test_options_can_be_read_after_other_backend_was_selected(self):
        groups = run_code(
            "import oslo_messaging\n"
            "from attachd import conf\n"
            "print([group.GROUP for group in conf.GROUPS])"
        )
        self.assertIn("'api'", groups)

# SPDX-License-Identifier: Apache-2.0
"""The backend of oslo.service that processes have, each in a process of its own."""

import unittest

from attachd.tests.unit.test_package import run_code


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

# SPDX-License-Identifier: Apache-2.0
"""attachd-status as people and deployment tools type it."""

import json
from pathlib import Path
import subprocess
import sys
import tempfile
import unittest

from attachd.db import migration
from attachd.tests import databases

COMMAND = "import sys; from attachd.cmd.status import main; sys.exit(main())"
BACKEND = "[DEFAULT]\nenabled_backends = one\n[one]\ndriver = fake\n"
SUCCESS, WARNING, FAILURE = 0, 1, 2


class StatusTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.url = databases.use_empty(self, "sqlite")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def _check(self, configuration=BACKEND):
        """Return the exit code, and result and details of each check by its name."""
        file = self.folder / "attachd.conf"
        file.write_text(f"{configuration}\n[database]\nconnection = {self.url}\n", "utf-8")
        command = [sys.executable, "-W", "ignore", "-c", COMMAND]
        ended = subprocess.run(
            [*command, "--config-file", file, "upgrade", "check", "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        checks = json.loads(ended.stdout)["checks"]
        return ended.returncode, {each["check"]: each for each in checks}

    def test_a_deployment_that_is_ready_is_said_to_be(self):
        migration.upgrade()
        code, checks = self._check()
        self.assertEqual(SUCCESS, code)
        self.assertEqual(3, len(checks))
        self.assertEqual({SUCCESS}, {each["result"] for each in checks.values()})

    def test_a_database_that_was_not_synced_fails_with_the_command_to_run(self):
        code, checks = self._check()
        self.assertEqual((FAILURE, FAILURE), (code, checks["Database"]["result"]))
        self.assertIn("attachd-manage db sync", checks["Database"]["details"])

    def test_a_database_that_does_not_answer_fails(self):
        self.url = "sqlite:////nonexistent/folder/x"
        code, checks = self._check()
        self.assertEqual((FAILURE, FAILURE), (code, checks["Database"]["result"]))

    def test_a_backend_without_a_driver_fails_by_name(self):
        migration.upgrade()
        code, checks = self._check(BACKEND.replace("= one", "= one, two"))
        self.assertEqual((FAILURE, FAILURE), (code, checks["Backends"]["result"]))
        self.assertIn("two", checks["Backends"]["details"])
        self.assertNotIn("one,", checks["Backends"]["details"])

    def test_no_backend_is_only_a_warning_as_an_api_has_none(self):
        migration.upgrade()
        code, checks = self._check("")
        self.assertEqual((WARNING, WARNING), (code, checks["Backends"]["result"]))

    def test_a_policy_file_in_json_fails(self):
        migration.upgrade()
        policy = self.folder / "policy.json"
        policy.write_text("{}", encoding="utf-8")
        code, checks = self._check(f"{BACKEND}[oslo_policy]\npolicy_file = {policy}\n")
        self.assertEqual(FAILURE, code)
        self.assertIn("YAML", checks["Policy File JSON to YAML"]["details"])

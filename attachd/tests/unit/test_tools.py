# SPDX-License-Identifier: Apache-2.0
"""The commands in tools/ that people type."""

import subprocess
import unittest

import yaml

from attachd.tests.fixtures import processes, requirements


class RunTestsTest(unittest.TestCase):
    """Arguments of run_tests.sh; each of these ends before anything is installed."""

    def run_it(self, *words):
        return subprocess.run(
            [processes.ROOT / "tools" / "run_tests.sh", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,  # Seconds: it prints a text.
        )

    def test_help_is_printed(self):
        for word in ("--help", "-h", "help"):
            done = self.run_it(word)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            self.assertIn("tools/run_tests.sh run -e full", done.stdout)

    def test_wrong_arguments_are_refused_at_once(self):
        for words, text in (
            (["runn", "-e", "full"], "there is no command runn"),
            (["--fast"], "there is no command --fast"),
            (["run", "-e", "ful"], "tox.ini has no environment ful"),
            (["run", "-e", "pep8,unit"], "tox.ini has no environment unit"),
            (["run", "-e"], "argument -e: the name of an environment is missing"),
            (["run", "crash"], "argument crash is unexpected"),
        ):
            done = self.run_it(*words)
            self.assertEqual((2, ""), (done.returncode, done.stdout), words)
            self.assertIn(text, done.stderr)
            self.assertIn("--help", done.stderr)


class AlertRulesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.tool = requirements.import_tool(self, "alert_rules")

    def test_rules_have_whole_addresses_of_runbooks(self):
        base = self.tool.base_url("https://docs.example.org/attachd/")
        (group,) = yaml.safe_load(self.tool.rules(base))["groups"]
        self.assertGreater(len(group["rules"]), 20)
        for rule in group["rules"]:
            page = (
                f"https://docs.example.org/attachd/admin/monitoring.html#{rule['alert'].lower()}"
            )
            self.assertEqual(page, rule["annotations"]["runbook_url"])
            self.assertNotIn("runbook", rule["annotations"])

# SPDX-License-Identifier: Apache-2.0
"""Tests of changes and errors in policy.yaml while the service runs."""

import os
import unittest

import requests

from attachd.tests.fixtures import lifetime, processes
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

PROJECT = "a" * 32
READER = f"rita:{PROJECT}:reader"
LIST = "volume:get_all"


@full_only("deployments")
class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.policy = self.folder / "policy.yaml"
        self.configuration = self.folder / "more.conf"
        self.configuration.write_text(
            f"[file]\nfile_loop_devices = never\n[oslo_policy]\npolicy_file = {self.policy}\n"
        )

    def start(self):
        return AllInOne(self, self.folder / "state", f"--config-file={self.configuration}")


class EditsTest(Case):
    def setUp(self):
        super().setUp()
        self.process = self.start()

    def list(self):
        answer = requests.get(
            f"{self.process.url}/v3/{PROJECT}/volumes",
            headers={"X-Auth-Token": READER},
            timeout=TIMEOUT,
        )
        return answer.status_code

    def write(self, text):
        """Replace the file as editors do: no process reads half of it."""
        new = self.folder / "new"
        new.write_text(text)
        new.rename(self.policy)

    def wait_for(self, status):
        wait_until(lambda: self.list() == status, self.list)

    def list_denied(self):
        self.assertEqual(403, self.list())

    def complaints(self):
        return self.process.output.count(f"The policy file {self.policy} is invalid")

    def test_policy_file_changes_apply_without_restart(self):
        self.assertEqual(200, self.list())
        self.write(f"'{LIST}': 'rule:admin_api'\n")
        self.wait_for(403)
        self.write(f"'{LIST}': '@'\n")
        self.wait_for(200)
        self.write(f"'{LIST}': '!'\n")
        self.wait_for(403)
        self.policy.unlink()
        self.wait_for(200)

    def test_invalid_policy_file_changes_nothing_and_is_logged(self):
        self.write(f"'{LIST}': '!'\n")
        self.wait_for(403)
        broken = (": [", f"'{LIST}': 'allusers'", f"'{LIST}': 'allusers:x'", f"'{LIST}':")
        for number, text in enumerate(broken, 1):
            self.write(text)
            wait_until(
                lambda number=number: self.complaints() >= number or self.list_denied(),
                lambda: self.process.output,
            )
        self.policy.unlink()
        self.policy.mkdir()
        wait_until(
            lambda: (
                "it cannot be read: Is a directory" in self.process.output or self.list_denied()
            ),
            lambda: self.process.output,
        )
        for _ in range(50):
            self.list()
        # Once each time, however many requests there were; twice if it changed while it was read.
        self.assertLessEqual(self.complaints(), 2 * (len(broken) + 1))
        self.assertIn("ERROR", self.process.output)
        self.policy.rmdir()
        self.write(f"'{LIST}': '@'\n")
        self.wait_for(200)


class StartTest(Case):
    def test_broken_policy_file_prevents_start(self):
        self.policy.write_text(f"'{LIST}': 'rule:absent'\n")
        process = processes.Process(
            self,
            processes.script("attachd-all-in-one"),
            "--port=0",
            f"--state-path={self.folder / 'state'}",
            f"--config-file={self.configuration}",
        )
        self.assertEqual(1, process.wait())
        self.assertRegex(
            process.output,
            f"attachd-all-in-one: The policy file {self.policy} is invalid: the rule {LIST} "
            "refers to the unknown rule absent",
        )

    def test_broken_policy_file_prevents_start_of_web_servers(self):
        self.policy.write_text(": [\n")
        environment = processes.environment(
            ATTACHD_CONFIG_FILES=str(self.configuration), HOME=str(self.folder)
        )
        process = processes.Process(
            self,
            processes.script("gunicorn"),
            "--bind=127.0.0.1:0",
            "attachd.wsgi:application",
            env=environment,
        )
        self.assertNotEqual(os.EX_OK, process.wait())
        self.assertIn(f"The policy file {self.policy} is invalid", process.output)

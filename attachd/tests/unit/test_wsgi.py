# SPDX-License-Identifier: Apache-2.0
"""The module that WSGI servers import."""

import os
from pathlib import Path
import subprocess
import sys
import tempfile
import unittest

from attachd.tests.wait import TIMEOUT

ASK = """
import io
from attachd.wsgi import application
environ = {
    "REQUEST_METHOD": "GET", "PATH_INFO": "/", "SERVER_NAME": "h", "SERVER_PORT": "1",
    "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "SCRIPT_NAME": "",
}
print(b"".join(application(environ, lambda status, headers: print(status))).decode())
"""


class ImportTest(unittest.TestCase):
    def run_with(self, configuration, code=ASK):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "attachd.conf"
        path.write_text(configuration, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "ATTACHD_CONFIG_FILES": str(path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )

    def test_the_application_is_configured_by_the_files_that_the_environment_names(self):
        done = self.run_with("[api]\npublic_endpoint = https://cloud/volume\n")
        self.assertIn("300 Multiple Choices", done.stdout, done.stderr)
        self.assertIn("https://cloud/volume/v3/", done.stdout)

    def test_it_says_that_authentication_is_off(self):
        self.assertIn("Authentication is off", self.run_with("").stderr)

    def test_it_says_that_secrets_are_not_sealed(self):
        self.assertIn("[secrets] key_file is not set", self.run_with("").stderr)

    def test_a_key_file_that_is_not_there_ends_the_start(self):
        done = self.run_with("[secrets]\nkey_file = /nowhere/secrets.keys\n")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("[secrets] key_file: /nowhere/secrets.keys cannot be read", done.stderr)

    def test_neither_database_nor_message_queue_is_needed_to_start(self):
        broken = (
            "[DEFAULT]\ntransport_url = rabbit://nobody@127.0.0.1:1/\n"
            "[database]\nconnection = sqlite:////nowhere/x.sqlite\n"
        )
        self.assertIn("300 Multiple Choices", self.run_with(broken).stdout)

    def test_a_mistake_in_the_configuration_ends_the_start(self):
        done = self.run_with("[api]\nauth_strategy = hope\n")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("auth_strategy", done.stderr)

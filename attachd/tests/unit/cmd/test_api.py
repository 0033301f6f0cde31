# SPDX-License-Identifier: Apache-2.0
"""The API as WSGI servers import it."""

import os
import subprocess
import sys
import unittest

from attachd.tests.fixtures import lifetime
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

NOAUTH = "[api]\nauth_strategy = noauth\n"


class ImportTest(unittest.TestCase):
    def run_with(self, configuration, code=ASK):
        path = lifetime.temp_dir(self) / "attachd.conf"
        path.write_text(configuration, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "ATTACHD_CONFIG_FILES": str(path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )

    def test_application_reads_config_files_of_environment(self):
        done = self.run_with(f"{NOAUTH}public_endpoint = https://cloud/volume\n")
        self.assertIn("300 Multiple Choices", done.stdout, done.stderr)
        self.assertIn("https://cloud/volume/v3/", done.stdout)

    def test_application_without_authentication_logs_warning(self):
        self.assertIn("Authentication is off", self.run_with(NOAUTH).stderr)

    def test_application_without_auth_strategy_fails_to_start(self):
        done = self.run_with("")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("[api] auth_strategy is not set. Set it to keystone", done.stderr)

    def test_application_without_key_file_logs_warning(self):
        self.assertIn("[secrets] key_file is not set", self.run_with(NOAUTH).stderr)

    def test_application_with_missing_key_file_fails_to_start(self):
        done = self.run_with("[secrets]\nkey_file = /nowhere/secrets.keys\n")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("[secrets] key_file: /nowhere/secrets.keys cannot be read", done.stderr)

    def test_application_starts_without_database_and_message_queue(self):
        broken = (
            "[DEFAULT]\ntransport_url = rabbit://unknown@127.0.0.1:1/\n"
            f"[database]\nconnection = sqlite:////nowhere/x.sqlite\n{NOAUTH}"
        )
        self.assertIn("300 Multiple Choices", self.run_with(broken).stdout)

    def test_application_reads_threads_of_uwsgi(self):
        code = (
            "import sys, types\n"
            "sys.modules['uwsgi'] = types.SimpleNamespace(cores=16, worker_id=lambda: 1)\n"
            "import attachd.wsgi\n"
            "from attachd.rpc import bulkheads\n"
            "print(bulkheads.limits())\n"
        )
        self.assertIn("Limits(process=10, ", self.run_with(NOAUTH, code).stdout)

    def test_application_with_invalid_option_fails_to_start(self):
        done = self.run_with("[api]\nauth_strategy = hope\n")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("auth_strategy", done.stderr)

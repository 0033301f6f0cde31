# SPDX-License-Identifier: Apache-2.0
"""Tests of configuration: invalid values, unknown options, other sources."""

from http import server
import json
import os
from pathlib import Path
import sys
import threading
import unittest

from attachd.tests.fixtures import databases, lifetime, processes
from attachd.tests.selection import full_only

_SECRET = "in-no-log-" + "5" * 8

_PRINT = """\
import sys
from attachd import service
from attachd.conf import CONF
service.prepare(sys.argv[1:])
print(CONF.transport_url, CONF.rpc.attach_timeout)
"""


@full_only("deployments")
class ConfigurationTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.file = self.folder / "attachd.conf"

    def run_it(self, *command, text="", code=0, **variables):
        """Run a command with a configuration; return its output and errors."""
        self.file.write_text(text, encoding="utf-8")
        env = {"HOME": str(self.folder), "ATTACHD_CONFIG_FILES": str(self.file), **variables}
        done = processes.run(command, env=processes.environment(**env), cwd=self.folder)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def printed(self, *words, **variables):
        return self.run_it(sys.executable, "-c", _PRINT, *words, **variables)

    def test_manager_with_invalid_option_exits_and_names_it(self):
        shared = f"[DEFAULT]\nstate_path = {self.folder}\nenabled_backends = shelf\n"
        for text, name in (
            ("[manager]\nworkers = none\n", "[manager]workers"),
            ("[shelf]\ndriver = tgt\ntgt_timeout = soon\n", "[shelf]tgt_timeout"),
        ):
            with self.subTest(name):
                command = processes.script("attachd-manager")
                said = self.run_it(command, text=shared + text, code=1)
                self.assertIn(f"attachd-manager: {name}: ", said)
                self.assertNotIn("Traceback", said)

    def test_api_with_invalid_option_exits_and_names_it(self):
        text = "[api]\nmax_limit = 0\n"
        said = self.run_it(sys.executable, "-c", "import attachd.wsgi", text=text, code=1)
        self.assertIn("[api]max_limit: ", said)

    def test_unknown_option_is_a_warning_at_start(self):
        said = self.printed(text="[rpc]\nattach_timeot = 3\n")
        self.assertIn("WARNING", said)
        self.assertIn(f"{self.file}: there is no option [rpc]attach_timeot", said)
        self.assertIn("Did you mean [rpc]attach_timeout?", said)

    def test_environment_variables_override_the_configuration_file(self):
        text = "[DEFAULT]\ntransport_url = fake:\n[rpc]\nattach_timeout = 3\n"
        self.assertIn("fake: 3", self.printed(text=text))
        said = self.printed(
            text=text, OS_DEFAULT__TRANSPORT_URL="rabbit://one/", OS_RPC__ATTACH_TIMEOUT="4"
        )
        self.assertIn("rabbit://one/ 4", said)
        self.assertNotIn("WARNING", said)

    def test_invalid_environment_variable_is_named(self):
        said = self.printed(code=1, OS_RPC__ATTACH_TIMEOUT="soon")
        self.assertIn("[rpc]attach_timeout: ", said)
        self.assertIn("OS_RPC__ATTACH_TIMEOUT", said)

    def test_database_url_may_come_from_environment_variable(self):
        url = databases.create(self, "sqlite")
        command = (processes.script("attachd-manage"), "db", "sync")
        self.run_it(*command, OS_DATABASE__CONNECTION=url)
        self.assertTrue(Path(url.removeprefix("sqlite:///")).stat().st_size)

    def test_passwords_may_be_in_a_separate_file(self):
        """As systemd's LoadCredential= hands it to a unit: for its user alone, in a folder."""
        credentials = self.folder / "credentials"
        credentials.mkdir(mode=0o700)
        secret = credentials / "secrets.conf"
        secret.write_text(f"[DEFAULT]\ntransport_url = rabbit://me:{_SECRET}@one/\n")
        secret.chmod(0o400)
        files = os.pathsep.join([str(self.file), str(secret)])
        said = self.printed(text="[rpc]\nattach_timeout = 3\n", ATTACHD_CONFIG_FILES=files)
        self.assertIn(f"{_SECRET}@one/ 3", said)

    def test_commands_find_the_files_of_the_manager(self):
        usual = self.folder / ".attachd"
        usual.mkdir()
        (usual / "attachd.conf").write_text(
            "[database]\nconnection = sqlite:////nowhere/attachd.sqlite\n"
        )
        (usual / "attachd-manager.conf").write_text(
            f"[database]\nconnection = sqlite:///{self.folder}/attachd.sqlite\n"
        )
        manage = processes.script("attachd-manage")
        self.run_it(manage, "db", "sync", ATTACHD_CONFIG_FILES="")
        self.assertTrue((self.folder / "attachd.sqlite").exists())
        said = self.run_it(manage, "service", "list", ATTACHD_CONFIG_FILES="")
        self.assertEqual("", said)
        # It fails for other reasons, such as the missing message queue.
        command = [processes.script("attachd-status"), "upgrade", "check", "--json"]
        env = processes.environment(HOME=str(self.folder), ATTACHD_CONFIG_FILES="")
        report = processes.run(command, env=env, cwd=self.folder).stdout
        checks = {item["check"]: item for item in json.loads(report)["checks"]}
        self.assertEqual(0, checks["Database"]["result"], report)

    def test_config_source_may_be_remote(self):
        """oslo.config's own sources are there; this one reads what a URI has."""
        values = b"[rpc]\nattach_timeout = 5\n"

        class Values(server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", f"{len(values)}")
                self.end_headers()
                self.wfile.write(values)

            def log_message(self, *_arguments):
                pass

        elsewhere = server.HTTPServer(("127.0.0.1", 0), Values)
        self.addCleanup(elsewhere.server_close)
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        self.addCleanup(elsewhere.shutdown)
        said = self.printed(
            text="[DEFAULT]\ntransport_url = fake:\nconfig_source = elsewhere\n"
            "[elsewhere]\ndriver = remote_file\n"
            f"uri = http://127.0.0.1:{elsewhere.server_port}/values.conf\n"
        )
        self.assertIn("fake: 5", said)
        self.assertNotIn("WARNING", said)

    def test_password_may_be_in_vault(self):
        """castellan's source, with a Vault that knows one secret; files as the guide has them."""
        secret = {
            "type": "opaque",
            "name": None,
            "created": 0,
            "value": f"rabbit://me:{_SECRET}@one/".encode().hex(),
        }
        asked = []

        class Vault(server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append((self.path, self.headers["X-Vault-Token"]))
                self._answer({"data": {"data": secret}})

            def do_POST(self):
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append((self.path, said["secret_id"]))
                self._answer({"auth": {"client_token": "let-me-in", "lease_duration": 600}})

            def _answer(self, values):
                body = json.dumps(values).encode()
                self.send_response(200)
                self.send_header("Content-Length", f"{len(body)}")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments):
                pass

        vault = server.HTTPServer(("127.0.0.1", 0), Vault)
        self.addCleanup(vault.server_close)
        threading.Thread(target=vault.serve_forever, daemon=True).start()
        self.addCleanup(vault.shutdown)
        (self.folder / "castellan.conf").write_text(
            "[key_manager]\nbackend = vault\n"
            f"[vault]\nvault_url = http://127.0.0.1:{vault.server_port}\n"
            "auth_method = approle\napprole_role_id = me\napprole_secret_id = mine\n"
        )
        (self.folder / "mapping.conf").write_text("[DEFAULT]\ntransport_url = 0b6e1d54\n")
        said = self.printed(
            text="[DEFAULT]\nconfig_source = vault\n[rpc]\nattach_timeout = 6\n"
            f"[vault]\ndriver = castellan\nconfig_file = {self.folder / 'castellan.conf'}\n"
            f"mapping_file = {self.folder / 'mapping.conf'}\n"
        )
        self.assertIn(f"rabbit://me:{_SECRET}@one/ 6", said)
        self.assertNotIn("there is no", said)
        self.assertEqual("mine", asked[0][1])
        self.assertIn("0b6e1d54", asked[1][0])
        self.assertEqual("let-me-in", asked[1][1])

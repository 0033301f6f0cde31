# SPDX-License-Identifier: Apache-2.0
"""The command attachd-status."""

import datetime
import json
import os
from unittest import mock

import bcrypt

from attachd.db import migration, models
from attachd.db.cluster import services
from attachd.db.secrets import key_file
from attachd.db.types import type_store
from attachd.rpc import manager_api
from attachd.tests.fixtures import databases, db_rows, forked_command, lifetime

BACKEND = "[DEFAULT]\nenabled_backends = one\n[one]\ndriver = fake\n"
SUCCESS, WARNING, FAILURE = 0, 1, 2


class StatusTest(forked_command.ForkedCommandCase):
    name = "attachd-status"
    module = "attachd.cmd.status"

    def setUp(self):
        super().setUp()
        self.url = databases.use_without_tables(self, "sqlite")
        self.folder = lifetime.temp_dir(self)
        self.keys = self.folder / "secrets.keys"
        key_file.create(str(self.keys))
        users, roles = self.folder / "htpasswd", self.folder / "roles.yaml"
        users.write_text(f"alice:{bcrypt.hashpw(b'x', bcrypt.gensalt(4)).decode()}\n")
        users.chmod(0o600)
        roles.write_text("alice: {project: aa, roles: [reader]}")
        self.callers = (
            f"[api]\nauth_strategy = http_basic\nhttp_basic_user_file = {users}\n"
            f"http_basic_roles_file = {roles}\n"
        )

    def _check(self, configuration=BACKEND, *, by_variable=False):
        """Return the exit code, and result and details of each check by its name."""
        ended = self._typed(configuration, by_variable=by_variable)
        checks = json.loads(ended.stdout)["checks"]
        return ended.returncode, {check["check"]: check for check in checks}

    def _typed(self, configuration, *, by_variable=False):
        file = self.folder / "attachd.conf"
        keys = f"[secrets]\nkey_file = {self.keys}\n" if self.keys.exists() else ""
        database = f"[database]\nconnection = {self.url}\n"
        shared = f"state_path = {self.folder}\ntransport_url = rabbit://me:it@127.0.0.1/ours\n"
        agents = "[agent]\ntransport_url = rabbit://me:it@127.0.0.1/agents\n"
        text = f"{self.callers}[DEFAULT]\n{shared}{configuration}\n{keys}{database}{agents}"
        file.write_text(text, "utf-8")
        named = [] if by_variable else ["--config-file", file]
        variable = {"ATTACHD_CONFIG_FILES": str(file) if by_variable else ""}
        return self.command.run(*named, "upgrade", "check", "--json", env=os.environ | variable)

    def test_check_of_ready_deployment_succeeds(self):
        migration.upgrade()
        code, checks = self._check()
        self.assertEqual(SUCCESS, code)
        self.assertGreaterEqual(len(checks), 15)
        self.assertEqual({SUCCESS}, {check["result"] for check in checks.values()})

    def test_check_reads_configuration_from_environment(self):
        migration.upgrade()
        code, checks = self._check(by_variable=True)
        self.assertEqual((SUCCESS, SUCCESS), (code, checks["Backends"]["result"]))

    def test_check_of_empty_database_fails_with_command(self):
        code, checks = self._check()
        self.assertEqual((FAILURE, FAILURE), (code, checks["Database"]["result"]))
        self.assertIn("attachd-manage db sync", checks["Database"]["details"])

    def test_check_of_unreachable_database_fails(self):
        self.url = "sqlite:////nonexistent/folder/x"
        code, checks = self._check()
        self.assertEqual((FAILURE, FAILURE), (code, checks["Database"]["result"]))

    def _report(self, host, contract):
        supported = services.Versions(contract, "Volume 1.2") if contract else None
        db_rows.report_service(host, supported=supported)

    def test_check_of_older_managers_warns_with_names(self):
        migration.upgrade()
        self._report("a@new", manager_api.VERSION)
        code, _checks = self._check()
        self.assertEqual(SUCCESS, code)
        self._report("b@old", "0.9")
        self._report("c@silent", None)
        long_ago = models.now() - datetime.timedelta(days=1)
        with mock.patch.object(models, "now", return_value=long_ago):
            self._report("d@dead", "0.9")
        code, checks = self._check()
        self.assertEqual((WARNING, WARNING), (code, checks["Managers"]["result"]))
        details = checks["Managers"]["details"].replace("\n", " ")
        self.assertIn("b@old (0.9), c@silent (unknown).", details)

    def test_check_of_needless_version_pin_succeeds(self):
        migration.upgrade()
        for pinned, expected in (
            (manager_api.VERSION, SUCCESS),
            ("auto", SUCCESS),
        ):
            with self.subTest(pinned):
                pin = f"{BACKEND}[upgrade_levels]\nattachd_manager = {pinned}\n"
                code, checks = self._check(pin)
                self.assertEqual((expected, expected), (code, checks["Upgrade Level"]["result"]))

    def test_check_of_backend_without_driver_fails_with_name(self):
        migration.upgrade()
        code, checks = self._check(BACKEND.replace("= one", "= one, two"))
        self.assertEqual((FAILURE, FAILURE), (code, checks["Backends"]["result"]))
        self.assertIn("two", checks["Backends"]["details"])
        self.assertNotIn("one,", checks["Backends"]["details"])

    def test_check_without_backend_warns(self):
        migration.upgrade()
        code, checks = self._check("")
        self.assertEqual((WARNING, WARNING), (code, checks["Backends"]["result"]))

    def test_check_without_key_file_warns(self):
        migration.upgrade()
        self.keys.unlink()
        code, checks = self._check()
        self.assertEqual((WARNING, WARNING), (code, checks["Secrets"]["result"]))
        self.assertIn("[secrets] key_file is not set", checks["Secrets"]["details"])

    def test_check_of_incomplete_authentication_fails_with_reason(self):
        migration.upgrade()
        for strategy, words in (("keystone", "auth_type"), ("http_basic", "/nonexistent/users")):
            with self.subTest(strategy):
                code, checks = self._check(
                    f"{BACKEND}[api]\nauth_strategy = {strategy}\n"
                    "http_basic_user_file = /nonexistent/users\n"
                )
                self.assertEqual((FAILURE, FAILURE), (code, checks["Callers"]["result"]))
                self.assertIn(words, checks["Callers"]["details"])

    def test_check_without_authentication_fails(self):
        migration.upgrade()
        self.callers = ""
        for configuration, words in (
            ("", "auth_strategy is not set"),
            ("[api]\nauth_strategy = noauth\n", "auth_strategy is noauth"),
        ):
            with self.subTest(words):
                code, checks = self._check(f"{BACKEND}{configuration}")
                self.assertEqual((FAILURE, FAILURE), (code, checks["Callers"]["result"]))
                self.assertIn(words, checks["Callers"]["details"].replace("\n", " "))

    def test_check_without_service_token_roles_warns(self):
        migration.upgrade()
        keystone = (
            f"{BACKEND}[api]\nauth_strategy = keystone\n[keystone_authtoken]\n"
            "auth_type = password\nauth_url = http://127.0.0.1:1/v3\nusername = attachd\n"
        )
        code, checks = self._check(keystone)
        self.assertEqual(SUCCESS, code, checks)
        code, checks = self._check(f"{keystone}service_token_roles_required = false\n")
        self.assertEqual((WARNING, WARNING), (code, checks["Callers"]["result"]))

    def test_check_of_broken_policy_file_fails_with_name(self):
        migration.upgrade()
        policy = self.folder / "policy.yaml"
        configuration = f"{BACKEND}[oslo_policy]\npolicy_file = {policy}\n"
        policy.write_text("'volume:get': 'rule:absent'", encoding="utf-8")
        code, checks = self._check(configuration)
        self.assertEqual((FAILURE, FAILURE), (code, checks["Policy"]["result"]))
        for word in (str(policy), "volume:get", "rule absent"):
            self.assertIn(word, checks["Policy"]["details"].replace("\n", " "))

    def test_check_of_unknown_policy_rule_warns(self):
        migration.upgrade()
        policy = self.folder / "policy.yaml"
        configuration = f"{BACKEND}[oslo_policy]\npolicy_file = {policy}\n"
        policy.write_text("'volume:gett': '@'", encoding="utf-8")
        code, checks = self._check(configuration)
        self.assertEqual((WARNING, WARNING), (code, checks["Policy"]["result"]))
        self.assertIn("volume:gett", checks["Policy"]["details"])

    def test_check_of_policy_file_in_json_fails(self):
        migration.upgrade()
        policy = self.folder / "policy.json"
        policy.write_text("{}", encoding="utf-8")
        code, checks = self._check(f"{BACKEND}[oslo_policy]\npolicy_file = {policy}\n")
        self.assertEqual(FAILURE, code)
        self.assertIn("YAML", checks["Policy File JSON to YAML"]["details"])

    def test_check_of_missing_default_type_fails_with_name(self):
        migration.upgrade()
        default = BACKEND.replace("[DEFAULT]", "[DEFAULT]\ndefault_volume_type = gold")
        code, checks = self._check(default)
        self.assertEqual((FAILURE, FAILURE), (code, checks["Default Volume Type"]["result"]))
        self.assertIn("gold, does not exist", checks["Default Volume Type"]["details"])
        type_store.create({"name": "gold"})
        code, _checks = self._check(default)
        self.assertEqual(SUCCESS, code)

    def test_check_of_missing_filter_file_fails_with_name(self):
        migration.upgrade()
        file = self.folder / "filters.json"
        code, checks = self._check(f"{BACKEND}[api]\nresource_query_filters_file = {file}\n")
        self.assertEqual((FAILURE, FAILURE), (code, checks["List Filters"]["result"]))
        self.assertIn("filters.json", checks["List Filters"]["details"])

    def test_check_reports_all_problems_at_once(self):
        migration.upgrade()
        code, checks = self._check(
            "[DEFAULT]\nenabled_backends = one\ntransport_url = rabbit://guest:it@elsewhere/\n"
            "[one]\ndriver = tgt\ntgt_control_socket = /nonexistent/socket\n"
            "tgt_portl = 127.0.0.1:3260\n[oslo_messaging_rabbit]\nrabbit_quorum_queue = true\n"
        )
        self.assertEqual(FAILURE, code)
        for name, result, words in (
            ("Options", WARNING, "Did you mean [one]tgt_portal?"),
            ("Message Queue", WARNING, "rabbit_transient_quorum_queue"),
            ("Storage", FAILURE, "Backend one: "),
            ("Clocks", SUCCESS, ""),
        ):
            with self.subTest(name):
                details = (checks[name]["details"] or "").replace("\n", " ")
                self.assertEqual(result, checks[name]["result"], details)
                self.assertIn(words, details)

    def test_invalid_value_fails_its_checks_and_no_others(self):
        migration.upgrade()
        code, checks = self._check(
            f"{BACKEND}[api]\nauth_strategy = nonesuch\n"
            "[oslo_messaging_rabbit]\nheartbeat_timeout_threshold = soon\n"
        )
        self.assertEqual(FAILURE, code)
        for name, words in (
            ("Options", "[api]auth_strategy"),
            ("Message Queue", "heartbeat_timeout_threshold"),
            ("Callers", "auth_strategy"),
        ):
            self.assertEqual(FAILURE, checks[name]["result"], name)
            self.assertIn(words, checks[name]["details"])
        self.assertEqual(SUCCESS, checks["Storage"]["result"])

    def test_unreadable_configuration_file_is_one_line_and_exits_with_255(self):
        ended = self._typed("[DEFAULT")
        self.assertEqual((255, ""), (ended.returncode, ended.stdout))
        self.assertRegex(ended.stderr, r"^attachd-status: .*/attachd\.conf.*\n$")

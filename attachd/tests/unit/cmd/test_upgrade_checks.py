# SPDX-License-Identifier: Apache-2.0
"""The checks of attachd-status; test_status.py tests the command."""

import os
import unittest
from unittest import mock

import oslo_messaging as messaging
from stevedore import extension

from attachd import exception
from attachd.cmd import upgrade_checks
from attachd.cmd.upgrade_checks import Code
from attachd.conf import CONF, checking
from attachd.db.cluster import services
from attachd.db.engine import session
from attachd.drivers import loop
from attachd.rpc import manager_api, transport
from attachd.tests.fixtures import conf_fixture, databases, db_rows, key_files, lifetime
from attachd.tests.wait import TIMEOUT

RABBIT = "oslo_messaging_rabbit"


class CheckTest(unittest.TestCase):
    def set(self, name, value, group=None):
        CONF.set_override(name, value, group=group)
        self.addCleanup(CONF.clear_override, name, group=group)

    def assert_result(self, code, result, *words):
        details = result.details or ""
        self.assertEqual(code, result.code, details)
        for word in words:
            self.assertIn(word, details)


class OptionsTest(CheckTest):
    def test_options_check_of_unknown_option_warns_with_suggestion(self):
        found = checking.UnknownOption("/etc/x.conf", "api", "max_limmit", "[api]max_limit")
        with mock.patch.object(checking, "find_unknown_options", return_value=[found]):
            self.assert_result(
                Code.WARNING, upgrade_checks.options(None), "[api]max_limmit", "[api]max_limit?"
            )

    def test_options_check_without_unknown_options_succeeds(self):
        with mock.patch.object(checking, "find_unknown_options", return_value=[]):
            self.assert_result(Code.SUCCESS, upgrade_checks.options(None))


class StorageTest(CheckTest):
    def setUp(self):
        super().setUp()
        databases.use(self)
        self.folder = lifetime.temp_dir(self)
        self.set("state_path", str(self.folder))

    def use(self, driver, **options):
        name = f"status-{driver}"
        self.set("enabled_backends", [name])
        for option, value in {"driver": driver, **options}.items():
            CONF.register_opts(_options_of(driver), group=name)
            self.set(option, value, group=name)
        return upgrade_checks.storage(None)

    def test_storage_check_sets_up_driver(self):
        folder = str(self.folder / "files")
        self.assert_result(
            Code.SUCCESS, self.use("file", file_folder=folder, file_loop_devices="never")
        )

    def test_storage_check_with_unusable_devices_folder_fails_with_its_name(self):
        devices = self.folder / "devices"
        (devices / ".boot_id").mkdir(parents=True)  # stands for a directory without permission
        with mock.patch.object(loop, "unavailable", return_value=""):
            result = self.use(
                "file", file_folder=str(self.folder / "files"), file_devices_dir=str(devices)
            )
        self.assert_result(Code.FAILURE, result, f"{devices} cannot be used")

    def test_storage_check_of_unreachable_tgtd_fails_with_reason(self):
        path = str(self.folder / "unknown")
        result = self.use("tgt", tgt_control_socket=path, tgt_timeout=TIMEOUT)
        self.assert_result(Code.FAILURE, result, "status-tgt", path)

    def test_storage_check_of_unknown_driver_fails_with_name(self):
        result = self.use("nothing")
        self.assert_result(Code.FAILURE, result, "[status-nothing]driver")

    def test_storage_check_as_other_user_warns_and_changes_nothing(self):
        with mock.patch.object(os, "geteuid", return_value=os.geteuid() + 1):
            result = self.use("file", file_folder=str(self.folder / "files"))
        self.assert_result(Code.WARNING, result, "run this as")
        self.assertEqual([], list(self.folder.iterdir()))

    def test_storage_check_of_missing_state_path_warns(self):
        self.set("state_path", str(self.folder / "nowhere"))
        result = self.use("file", file_folder=str(self.folder / "files"))
        self.assert_result(Code.WARNING, result, "nowhere is missing")

    def test_storage_check_without_backends_succeeds(self):
        self.set("enabled_backends", [])
        self.assert_result(Code.SUCCESS, upgrade_checks.storage(None))


def _options_of(driver):
    found = {item.name: item.plugin for item in extension.ExtensionManager("attachd.drivers")}
    return [
        upgrade_checks.backends.conf.manager.DRIVER,
        *getattr(found.get(driver), "OPTIONS", ()),
    ]


class QueueTest(CheckTest):
    def setUp(self):
        super().setUp()
        # Registers its options.
        messaging.TransportURL(CONF)
        self.use("rabbit://attachd:secret-of-the-queue@mq1,attachd:it@mq2/attachd")

    def use(self, url):
        self.set("transport_url", url)
        transport.close()
        transport.get_transport()
        self.addCleanup(transport.close)

    def test_queue_check_of_recommended_settings_succeeds(self):
        self.assert_result(Code.SUCCESS, upgrade_checks.queue(None))
        self.set("rabbit_quorum_queue", True, RABBIT)
        self.set("rabbit_transient_quorum_queue", True, RABBIT)
        self.assert_result(Code.SUCCESS, upgrade_checks.queue(None))

    def test_queue_check_of_mixed_queue_types_warns(self):
        self.set("rabbit_quorum_queue", True, RABBIT)
        self.assert_result(
            Code.WARNING, upgrade_checks.queue(None), "rabbit_transient_quorum_queue"
        )

    def test_queue_check_of_mirrored_queues_warns(self):
        self.set("rabbit_ha_queues", True, RABBIT)
        self.assert_result(Code.WARNING, upgrade_checks.queue(None), "RabbitMQ 4")

    def test_queue_check_of_unsuitable_heartbeat_warns(self):
        for seconds in (0, 2):
            with self.subTest(seconds):
                self.set("heartbeat_timeout_threshold", seconds, RABBIT)
                self.assert_result(
                    Code.WARNING, upgrade_checks.queue(None), f"is {seconds} seconds"
                )

    def test_queue_check_of_incomplete_url_warns_without_password(self):
        for url, word in (
            ("rabbit://guest:secret-of-the-queue@mq1/attachd", "guest"),
            ("rabbit://attachd:secret-of-the-queue@mq1/", "virtual host"),
            ("fake:", "no other process"),
        ):
            with self.subTest(url):
                self.use(url)
                result = upgrade_checks.queue(None)
                self.assert_result(Code.WARNING, result, word)
                self.assertNotIn("secret-of-the-queue", result.details)

    def test_queue_check_of_unknown_transport_fails(self):
        self.set("transport_url", "nothing://x:secret-of-the-queue@y/")
        transport.close()
        result = upgrade_checks.queue(None)
        self.assert_result(Code.FAILURE, result, "transport_url")
        self.assertNotIn("secret-of-the-queue", result.details)

    def test_queue_check_of_unquoted_password_fails_without_password(self):
        self.set("transport_url", "rabbit://attachd:secret-of/the-queue@mq1/attachd")
        transport.close()
        result = upgrade_checks.queue(None)
        self.assert_result(Code.FAILURE, result, "[DEFAULT]transport_url", "percent-encoded")
        self.assertNotIn("secret-of", result.details)


class AgentsTest(CheckTest):
    def setUp(self):
        super().setUp()
        messaging.TransportURL(CONF)  # registers its options
        self.set("transport_url", "rabbit://attachd:it@mq1,attachd:it@mq2/attachd")

    def use(self, url):
        self.set("transport_url", url, "agent")

    def test_agents_check_of_separate_virtual_host_succeeds(self):
        for url in (
            "rabbit://attachd:it@mq1,attachd:it@mq2/agents",
            "rabbit://attachd:it@mq3/attachd",
            "rabbit://attachd:it@mq1:5673/attachd",
        ):
            with self.subTest(url):
                self.use(url)
                self.assert_result(Code.SUCCESS, upgrade_checks.agents(None))

    def test_agents_check_of_shared_virtual_host_fails(self):
        for url in (
            None,
            "rabbit://attachd:it@mq2:5672/attachd",
            "rabbit://node-1:secret@mq1,node-1:secret@mq3/attachd",
        ):
            with self.subTest(url):
                self.use(url)
                result = upgrade_checks.agents(None)
                self.assert_result(Code.FAILURE, result, "[agent] transport_url")
                self.assertNotIn("secret", result.details)

    def test_agents_check_without_agents_succeeds(self):
        self.set("enabled", False, "agent")
        self.set("allow_new", True, "agent")
        self.assert_result(Code.SUCCESS, upgrade_checks.agents(None))

    def test_agents_check_of_free_registration_warns(self):
        self.use("rabbit://attachd:it@mq1/agents")
        self.set("allow_new", True, "agent")
        self.assert_result(Code.WARNING, upgrade_checks.agents(None), "allow_new")

    def test_agents_check_of_unreadable_url_fails(self):
        self.use("rabbit://attachd:secret-of/it@mq1/agents")
        result = upgrade_checks.agents(None)
        self.assert_result(Code.FAILURE, result, "[agent]transport_url")
        self.assertNotIn("secret-of", result.details)


class ClockTest(CheckTest):
    def test_clock_check_of_equal_clocks_succeeds_on_each_database(self):
        for kind in databases.KINDS:
            databases.use(self, kind)
            self.assert_result(Code.SUCCESS, upgrade_checks.clock(None))

    def test_clock_check_of_different_database_clock_warns(self):
        databases.use(self)
        for seconds, word in ((-60, "60 seconds behind"), (61, "61 seconds ahead of")):
            with mock.patch.object(
                upgrade_checks.clock_skew, "database_offset", return_value=seconds
            ):
                self.assert_result(Code.WARNING, upgrade_checks.clock(None), word)


class SecretsTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)

    def check(self, expected):
        found = upgrade_checks.secrets(None)
        self.assertEqual(expected, found.code, found.details)
        return found.details

    def add(self):
        db_rows.add_attachment(db_rows.add_volume()["id"], "attached")

    def test_secrets_check_of_encrypted_secrets_succeeds(self):
        self.check(Code.SUCCESS)
        self.add()
        self.check(Code.SUCCESS)

    def test_secrets_check_without_keys_warns_with_command(self):
        key_files.configure(self, None)
        self.add()
        details = self.check(Code.WARNING)
        self.assertIn("[secrets] key_file is not set", details)
        self.assertIn("attachd-manage key create", details)

    def test_secrets_check_of_plain_secrets_warns(self):
        key_files.configure(self, None)
        self.add()
        key_files.configure(self, self.file)
        self.assertIn("1 secrets in the database are not encrypted", self.check(Code.WARNING))

    def test_secrets_check_of_missing_key_fails_with_id(self):
        self.add()
        lost = key_files.key_ids(self.file)[0]
        key_files.replace_all_keys(self.file)
        self.assertIn(lost, self.check(Code.FAILURE))
        key_files.configure(self, None)
        self.assertIn(lost, self.check(Code.FAILURE))

    def test_secrets_check_of_invalid_key_file_fails_with_reason(self):
        self.file.chmod(0o644)
        self.assertIn("has mode 0644", self.check(Code.FAILURE))

    def test_secrets_check_without_database_reads_key_file(self):
        session.dispose()
        conf_fixture.override(self, "connection", "sqlite:////nowhere/x", "database")
        self.check(Code.SUCCESS)


class ManagersTest(databases.DatabaseCase):
    def _check(self, **contracts):
        for host, contract in contracts.items():
            supported = services.Versions(contract, "Volume 1.2")
            db_rows.report_service(f"{host}@fake", supported=supported)
        return upgrade_checks.managers(None)

    def test_managers_check_of_this_release_succeeds(self):
        self.assertEqual(Code.SUCCESS, self._check(one=manager_api.VERSION).code)

    def test_managers_check_of_older_release_warns_with_names(self):
        self.enterContext(mock.patch.object(manager_api, "VERSION", "1.7"))
        found = self._check(one="1.7", two="1.4", three="1.6")
        self.assertEqual(Code.WARNING, found.code)
        self.assertIn("three@fake (1.6), two@fake (1.4).", found.details)

    def test_managers_check_without_database_is_skipped(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(services, "versions", side_effect=gone):
            found = self._check()
        self.assertEqual(Code.SUCCESS, found.code)
        self.assertIn("Not checked", found.details)


class ComputeEventsTest(CheckTest):
    def test_compute_events_check_without_credentials_says_what_that_means(self):
        result = upgrade_checks.compute_events(None)
        self.assert_result(Code.SUCCESS, result, "not notified", "[nova] has no auth_type")

    def test_compute_events_check_of_incomplete_credentials_fails(self):
        conf_fixture.override(self, "auth_type", "nonesuch", "nova")
        self.assert_result(Code.FAILURE, upgrade_checks.compute_events(None), "[nova] is invalid")

    def test_compute_events_check_of_credentials_succeeds(self):
        conf_fixture.override(self, "auth_type", "none", "nova")
        self.assertEqual(None, upgrade_checks.compute_events(None).details)


class PinTest(unittest.TestCase):
    def _check(self, pinned):
        conf_fixture.override(self, "attachd_manager", pinned, "upgrade_levels")
        return upgrade_checks.pin(None)

    def test_pin_check_of_older_version_warns(self):
        self.enterContext(mock.patch.object(manager_api, "VERSION", "1.7"))
        found = self._check("1.3")
        self.assertEqual(Code.WARNING, found.code)
        self.assertIn("attachd_manager is 1.3", found.details)

    def test_pin_check_of_newest_version_succeeds(self):
        for pinned in ("auto", manager_api.VERSION):
            self.assertEqual(Code.SUCCESS, self._check(pinned).code, pinned)

# SPDX-License-Identifier: Apache-2.0
"""The RPC version used with each backend."""

import datetime
import tempfile
from unittest import mock

from oslo_config import cfg

from attachd.conf import CONF
from attachd.conf import upgrade_levels as upgrade_levels_conf
from attachd.db import models
from attachd.db.cluster import services
from attachd.objects import base
from attachd.rpc import version_pins
from attachd.tests.fixtures import databases
from attachd.tests.fixtures.conf_fixture import override

OLD_OBJECTS = "Attachment 1.1, Volume 1.1"


def report(host, contract=None, objects=None):
    services.report(
        binary="attachd-manager",
        host=host,
        availability_zone="nova",
        up=True,
        error=None,
        report=None,
        supported=services.Versions(contract, objects) if contract else None,
    )


class VersionPinsTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(version_pins, "CACHE_TTL", 3600.0))
        version_pins.clear_cache()
        self.addCleanup(version_pins.clear_cache)

    def contract(self, backend):
        return version_pins.get_for_backend(backend, "1.10").contract

    def test_version_of_backend_is_as_reported(self):
        report("h@new", "1.10", base.to_text(base.newest()))
        report("h@old", "1.9", OLD_OBJECTS)
        self.assertEqual("1.10", self.contract("h@new"))
        self.assertEqual("1.9", self.contract("h@old"))
        old = version_pins.get_for_backend("h@old", "1.10")
        self.assertEqual(base.from_text(OLD_OBJECTS), old.objects)

    def test_version_of_backend_without_report_of_versions_is_default(self):
        report("h@b")
        self.assertEqual(version_pins.DEFAULT_VERSION, self.contract("h@b"))

    def test_version_of_newer_backend_is_own_version(self):
        report("h@b", "1.11", "Attachment 1.9, Volume 1.9")
        self.assertEqual(("1.10", base.newest()), version_pins.get_for_backend("h@b", "1.10"))

    def test_version_of_unknown_backend_is_own_version(self):
        self.assertEqual("1.10", self.contract("h@b"))

    def test_version_of_all_managers_is_oldest_of_living_ones(self):
        self.assertEqual("1.10", version_pins.get_for_all_managers("1.10").contract)
        report("h@a", "1.9", OLD_OBJECTS)
        long_ago = models.now() - datetime.timedelta(seconds=CONF.manager.service_down_time + 1)
        with mock.patch.object(models, "now", return_value=long_ago):
            report("h@dead", "1.7", OLD_OBJECTS)
        report("h@b", "1.10", OLD_OBJECTS)
        version_pins.clear_cache()
        self.assertEqual("1.9", version_pins.get_for_all_managers("1.10").contract)

    def test_configured_version_counts_for_all_without_database(self):
        report("h@b", "1.10", OLD_OBJECTS)
        override(self, "attachd_manager", "1.3", group="upgrade_levels")
        with mock.patch.object(services, "versions", side_effect=AssertionError):
            expected = ("1.3", base.of_contract("1.3"))
            self.assertEqual(expected, version_pins.get_for_backend("h@b", "1.10"))
            self.assertEqual(expected, version_pins.get_for_all_managers("1.10"))

    def test_configured_version_newer_than_own_is_own_version(self):
        override(self, "attachd_manager", "1.11", group="upgrade_levels")
        self.assertEqual("1.10", self.contract("h@b"))

    def test_configured_version_is_read_from_file(self):
        conf = cfg.ConfigOpts()
        group = upgrade_levels_conf
        conf.register_opts(group.OPTIONS, group=group.GROUP)
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("[upgrade_levels]\nattachd_manager = 1.3\n")
            file.flush()
            conf(["--config-file", file.name], project="attachd")
        self.assertEqual("1.3", conf.upgrade_levels.attachd_manager)

    def test_configured_version_accepts_only_versions(self):
        for wrong in ("2.0", "1", "1.x", "AUTO", "", "1.3.1"):
            with self.subTest(wrong), self.assertRaises(ValueError):
                CONF.set_override("attachd_manager", wrong, group="upgrade_levels")

    def test_version_is_cached_until_ttl_or_clear(self):
        report("h@b", "1.9", OLD_OBJECTS)
        self.contract("h@b")
        report("h@b", "1.8", OLD_OBJECTS)
        self.assertEqual("1.9", self.contract("h@b"))
        version_pins.clear_cache()
        self.assertEqual("1.8", self.contract("h@b"))
        with mock.patch.object(version_pins, "CACHE_TTL", -1.0):
            report("h@b", "1.7", OLD_OBJECTS)
            self.assertEqual("1.7", self.contract("h@b"))

# SPDX-License-Identifier: Apache-2.0
"""Calls of managers of several releases, and the versions used; see also test_manager_api."""

import contextlib
import datetime
import tempfile
import unittest
from unittest import mock

from oslo_config import cfg
import oslo_messaging as messaging
from oslo_versionedobjects import exception as object_exception

from attachd import exception, objects
from attachd.conf import CONF
from attachd.conf import upgrade_levels as upgrade_levels_conf
from attachd.context import RequestContext
from attachd.db import models
from attachd.db.cluster import services
from attachd.rpc import versions
from attachd.rpc.versions import IntroducedIn
from attachd.tests.fixtures import databases, db_rows, rpc_clients
from attachd.tests.fixtures.conf_fixture import override

SINCE = {"m": IntroducedIn("1.2", {"late": "1.4", "later": "1.10"})}
CONTEXT = RequestContext(overwrite=False)
OLD_OBJECTS = "Attachment 1.1, Volume 1.1"


class ManagerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        override(self, "attachd_manager", "1.9", group="upgrade_levels")
        self.client, _made = rpc_clients.patch_clients(self)
        self.manager = versions.get_client("h@b", "1.10", SINCE, 60)

    def test_call_leaves_out_empty_unsupported_arguments(self):
        self.manager.call(CONTEXT, "m", always=0, late="x", later=None)
        self.client.call.assert_called_once_with(CONTEXT, "m", always=0, late="x")
        self.manager.cast(CONTEXT, "m", always=0, late=None, later="")
        self.client.cast.assert_called_once_with(CONTEXT, "m", always=0, late=None)

    def test_call_with_unsupported_argument_raises_unavailable(self):
        for says in ([], 0, False, "x"):
            for send in (self.manager.call, self.manager.cast):
                with self.assertRaisesRegex(exception.Unavailable, r"h@b .* 1\.10 .* 1\.9"):
                    send(CONTEXT, "m", later=says)
        self.assertEqual([], self.client.mock_calls)

    def test_call_of_unsupported_method_raises_unavailable(self):
        for version, supported in (("1.2", True), ("1.10", False)):
            since = {"m": IntroducedIn(version)}
            for manager in (
                versions.get_client("h@b", "1.10", since, 60),
                versions.get_fanout_client("1.10", since),
            ):
                with contextlib.ExitStack() as stack:
                    if not supported:
                        refused = self.assertRaisesRegex(exception.Unavailable, r"1\.10 .* 1\.9")
                        stack.enter_context(refused)
                    manager.cast(CONTEXT, "m")
        self.assertEqual(2, self.client.cast.call_count)


class VersionMismatchTest(unittest.TestCase):
    """A manager is of another release than the cached version says."""

    def test_version_mismatch_clears_cache_and_raises_unavailable(self):
        for trouble in (
            messaging.RemoteError("UnsupportedVersion", "1.9"),
            messaging.RemoteError("IncompatibleObjectVersion", "2.0"),
            object_exception.IncompatibleObjectVersion(
                objname="Volume", objver="2.0", supported="1.2"
            ),
        ):
            with (
                mock.patch.object(versions, "clear_cache") as clear_cache,
                self.assertRaisesRegex(exception.Unavailable, "h@b is being upgraded"),
                versions.map_rpc_errors("h@b", "volume v"),
            ):
                raise trouble
            clear_cache.assert_called_once_with()

    def test_other_remote_errors_are_raised_unchanged(self):
        with (
            self.assertRaises(messaging.RemoteError),
            versions.map_rpc_errors("h@b", "volume v"),
        ):
            raise messaging.RemoteError("KeyError", "x")


def report(host, contract=None, objects=None):
    supported = services.Versions(contract, objects) if contract else None
    db_rows.report_service(host, supported=supported)


class VersionPinsTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(versions, "CACHE_TTL", 3600.0))
        versions.clear_cache()
        self.addCleanup(versions.clear_cache)

    def contract(self, backend):
        return versions.get_for_backend(backend, "1.10").contract

    def test_version_of_backend_is_as_reported(self):
        report("h@new", "1.10", objects.format_manifest(objects.newest_manifest()))
        report("h@old", "1.9", OLD_OBJECTS)
        self.assertEqual("1.10", self.contract("h@new"))
        self.assertEqual("1.9", self.contract("h@old"))
        old = versions.get_for_backend("h@old", "1.10")
        self.assertEqual(objects.parse_manifest(OLD_OBJECTS), old.objects)

    def test_version_of_backend_without_report_of_versions_is_default(self):
        report("h@b")
        self.assertEqual(versions.DEFAULT_VERSION, self.contract("h@b"))

    def test_version_of_newer_backend_is_own_version(self):
        report("h@b", "1.11", "Attachment 1.9, Volume 1.9")
        self.assertEqual(
            ("1.10", objects.newest_manifest()), versions.get_for_backend("h@b", "1.10")
        )

    def test_version_of_unknown_backend_is_own_version(self):
        self.assertEqual("1.10", self.contract("h@b"))

    def test_version_of_all_managers_is_oldest_of_living_ones(self):
        self.assertEqual("1.10", versions.get_for_all_managers("1.10").contract)
        report("h@a", "1.9", OLD_OBJECTS)
        long_ago = models.now() - datetime.timedelta(seconds=CONF.manager.service_down_time + 1)
        with mock.patch.object(models, "now", return_value=long_ago):
            report("h@dead", "1.7", OLD_OBJECTS)
        report("h@b", "1.10", OLD_OBJECTS)
        versions.clear_cache()
        self.assertEqual("1.9", versions.get_for_all_managers("1.10").contract)

    def test_configured_version_counts_for_all_without_database(self):
        report("h@b", "1.10", OLD_OBJECTS)
        override(self, "attachd_manager", "1.3", group="upgrade_levels")
        with mock.patch.object(services, "versions", side_effect=AssertionError):
            expected = ("1.3", objects.manifest_of_contract("1.3"))
            self.assertEqual(expected, versions.get_for_backend("h@b", "1.10"))
            self.assertEqual(expected, versions.get_for_all_managers("1.10"))

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
        versions.clear_cache()
        self.assertEqual("1.8", self.contract("h@b"))
        with mock.patch.object(versions, "CACHE_TTL", -1.0):
            report("h@b", "1.7", OLD_OBJECTS)
            self.assertEqual("1.7", self.contract("h@b"))

# SPDX-License-Identifier: Apache-2.0
"""Calls of managers of several releases; see also test_manager_api."""

import contextlib
import unittest
from unittest import mock

import oslo_messaging as messaging
from oslo_versionedobjects import exception as object_exception

from attachd import exception
from attachd.context import RequestContext
from attachd.rpc import version_compat, version_pins
from attachd.rpc.version_compat import IntroducedIn
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override

SINCE = {"m": IntroducedIn("1.2", {"late": "1.4", "later": "1.10"})}
CONTEXT = RequestContext(overwrite=False)


class ManagerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        override(self, "attachd_manager", "1.9", group="upgrade_levels")
        self.client, _made = rpc_clients.patch_clients(self)
        self.manager = version_compat.get_client("h@b", "1.10", SINCE)

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
                version_compat.get_client("h@b", "1.10", since),
                version_compat.get_fanout_client("1.10", since),
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
                mock.patch.object(version_pins, "clear_cache") as clear_cache,
                self.assertRaisesRegex(exception.Unavailable, "h@b is being upgraded"),
                version_compat.map_rpc_errors("h@b", "volume v"),
            ):
                raise trouble
            clear_cache.assert_called_once_with()

    def test_other_remote_errors_are_raised_unchanged(self):
        with (
            self.assertRaises(messaging.RemoteError),
            version_compat.map_rpc_errors("h@b", "volume v"),
        ):
            raise messaging.RemoteError("KeyError", "x")

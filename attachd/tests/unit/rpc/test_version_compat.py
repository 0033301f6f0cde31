# SPDX-License-Identifier: Apache-2.0
"""How a manager is asked, and what its troubles are called; see also test_manager_api."""

import unittest
from unittest import mock

import oslo_messaging as messaging
from oslo_versionedobjects import exception as object_exception

from attachd import exception
from attachd.context import RequestContext
from attachd.rpc import transport, version_compat, version_pins
from attachd.rpc.version_compat import IntroducedIn
from attachd.tests.fixtures.conf_fixture import override

SINCE = {"m": IntroducedIn("1.2", {"late": "1.4", "later": "1.10"})}
CONTEXT = RequestContext(overwrite=False)


class ManagerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        override(self, "attachd_manager", "1.9", group="upgrade_levels")
        self.client = mock.Mock()
        patched = mock.patch.object(transport, "get_client", return_value=self.client)
        patched.start()
        self.addCleanup(patched.stop)
        self.manager = version_compat.VersionedManagerClient("h@b", "1.10", SINCE)

    def test_it_knows_what_came_by_its_version(self):
        self.assertTrue(self.manager.knows("m"))
        self.assertTrue(self.manager.knows("m", "late"))
        self.assertFalse(self.manager.knows("m", "later"))
        self.assertTrue(self.manager.knows("m", "always"))

    def test_it_is_told_what_it_knows(self):
        self.manager.call(CONTEXT, "m", always=0, late="x", later=None)
        self.client.call.assert_called_once_with(CONTEXT, "m", always=0, late="x")
        self.manager.cast(CONTEXT, "m", always=0, late=None, later="")
        self.client.cast.assert_called_once_with(CONTEXT, "m", always=0, late=None)

    def test_what_says_something_is_not_kept_from_it(self):
        for says in ([], 0, False, "x"):
            for way in (self.manager.call, self.manager.cast):
                with self.assertRaisesRegex(exception.Unavailable, r"h@b .* 1\.10 .* 1\.9"):
                    way(CONTEXT, "m", later=says)
        self.assertEqual([], self.client.mock_calls)

    def test_what_it_can_do_without_is_left_out(self):
        self.assertEqual({"late": 1}, self.manager.drop_unsupported("m", late=1, later=2))

    def test_a_backend_is_asked_for_what_all_of_its_managers_know(self):
        version_compat.check("h@b", "1.10", "1.9")
        with self.assertRaisesRegex(exception.Unavailable, r"h@b .* 1\.10 .* 1\.9"):
            version_compat.check("h@b", "1.10", "1.10")


class MisunderstoodTest(unittest.TestCase):
    """Somebody is of another release than was believed."""

    def test_it_is_told_as_an_upgrade_and_asked_anew_the_next_time(self):
        for trouble in (
            messaging.RemoteError("UnsupportedVersion", "1.9"),
            messaging.RemoteError("IncompatibleObjectVersion", "2.0"),
            object_exception.IncompatibleObjectVersion(
                objname="Volume", objver="2.0", supported="1.2"
            ),
        ):
            with (
                mock.patch.object(version_pins, "clear_cache") as forget,
                self.assertRaisesRegex(exception.Unavailable, "h@b is being upgraded"),
                version_compat.map_rpc_errors("h@b", "volume v"),
            ):
                raise trouble
            forget.assert_called_once_with()

    def test_other_accidents_stay_what_they_are(self):
        with (
            self.assertRaises(messaging.RemoteError),
            version_compat.map_rpc_errors("h@b", "volume v"),
        ):
            raise messaging.RemoteError("KeyError", "x")

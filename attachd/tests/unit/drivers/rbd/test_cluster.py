# SPDX-License-Identifier: Apache-2.0
"""Commands of monitors, and errors; against a fake rados."""

import errno
import json
import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers import base
from attachd.drivers.rbd import cluster
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.unit.drivers import configured
from attachd.tests.unit.drivers.rbd import fake_modules


class ClusterTest(unittest.TestCase):
    """A connection whose monitors answer as the test says."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.options = configured.driver(RbdDriver).options
        self.cluster = cluster.Cluster(self.options)
        self.connection = self.lib.rados.Rados.return_value
        self.answers = {}
        self.connection.mon_command.side_effect = self._answer

    def _answer(self, line, _input, **_target):
        answer = self.answers.get(json.loads(line)["prefix"], (0, [], ""))
        return answer[0], json.dumps(answer[1]).encode(), answer[2]

    def assert_error(self, error, kind, text, final=False):
        self.assertIs(kind, type(error))
        self.assertIn(text, f"{error}")
        self.assertEqual(final, error.final)

    def test_connection_has_all_timeouts(self):
        self.cluster.read("df")
        settings = self.lib.rados.Rados.call_args.kwargs["conf"]
        for option in ("client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout"):
            self.assertEqual("30", settings[option])
        self.assertNotIn("ms_client_mode", settings)

    def test_secure_mode_is_set_for_monitors_and_osds(self):
        driver = configured.driver(RbdDriver, rbd_ms_mode="secure")
        cluster.Cluster(driver.options).read("df")
        settings = self.lib.rados.Rados.call_args.kwargs["conf"]
        names = ("ms_client_mode", "ms_mon_client_mode")
        self.assertEqual(["secure"] * 2, [settings[name] for name in names])

    def test_monitors_of_secure_mode_have_ports_of_second_protocol(self):
        addresses = [{"type": "v2", "addr": "[::1]:3300"}, {"type": "v1", "addr": "[::1]:6789"}]
        monitors = [{"public_addrs": {"addrvec": addresses}}]
        self.answers["mon dump"] = (0, {"mons": monitors}, "")
        self.assertEqual([("::1", "6789")], self.cluster.monitors())
        driver = configured.driver(RbdDriver, rbd_ms_mode="secure")
        self.assertEqual([("::1", "3300")], cluster.Cluster(driver.options).monitors())

    def test_refused_user_names_its_option(self):
        self.connection.connect.side_effect = self.lib.rados.PermissionDeniedError("denied", 13)
        with self.assertRaises(exception.BackendError) as caught:
            self.cluster.check()
        self.assert_error(caught.exception, exception.BackendError, "rbd_user", final=True)

    def test_missing_pool_names_its_option(self):
        self.connection.open_ioctx.side_effect = self.lib.rados.ObjectNotFound("none", 2)
        with self.assertRaises(exception.BackendError) as caught:
            self.cluster.check()
        self.assert_error(caught.exception, exception.BackendError, "rbd_pool", final=True)

    def test_unreadable_configuration_file_names_its_option(self):
        self.lib.rados.Rados.side_effect = self.lib.rados.ObjectNotFound("none", 2)
        with self.assertRaises(exception.BackendError) as caught:
            self.cluster.check()
        self.assert_error(caught.exception, exception.BackendError, "rbd_ceph_conf", final=True)

    def test_silent_monitors_are_unreachable(self):
        self.connection.connect.side_effect = self.lib.rados.TimedOut("timed out", 110)
        with self.assertRaises(exception.BackendUnreachable):
            self.cluster.read("df")
        self.connection.connect.side_effect = None
        self.answers["df"] = (-errno.ETIMEDOUT, None, "timed out")
        with self.assertRaises(exception.BackendUnreachable) as caught:
            self.cluster.read("df")
        self.assertIn("in 30 s", f"{caught.exception}")

    def test_missing_right_refers_to_guide(self):
        self.answers["auth ls"] = (-errno.EACCES, None, "access denied")
        with self.assertRaises(exception.BackendError) as caught:
            self.cluster.users()
        self.assert_error(caught.exception, exception.BackendError, "client.attachd may not")

    def test_missing_space_names_the_full_pools(self):
        pools = [{"pool_name": "volumes", "flags_names": "hashpspool,full"}]
        self.answers["osd dump"] = (0, {"pools": pools}, "")
        for code in (errno.ENOSPC, errno.EDQUOT):
            with (
                self.assertRaises(exception.BackendError) as caught,
                self.cluster.errors("X failed"),
            ):
                raise self.lib.rados.Error("no space", code)
            self.assert_error(caught.exception, exception.BackendError, "pool volumes is full")

    def test_timeout_has_the_health_of_the_cluster(self):
        checks = {"OSDMAP_FLAGS": {"summary": {"message": "pauserd,pausewr flag(s) set"}}}
        for answer, expected in (
            ((0, {"checks": checks}, ""), "timed out; Ceph reports: pauserd,pausewr flag(s) set."),
            ((0, {"checks": {}}, ""), "in 30 s: timed out."),
            ((-errno.ETIMEDOUT, None, "timed out"), "in 30 s: timed out."),
        ):
            self.answers["health"] = answer
            with (
                self.assertRaises(exception.BackendUnreachable) as caught,
                self.cluster.errors("X failed"),
            ):
                raise self.lib.rados.Error("timed out", errno.ETIMEDOUT)
            self.assertIn(expected, f"{caught.exception}")

    def test_pool_waits_for_no_space(self):
        with self.cluster.pool("volumes") as pool:
            pool.set_osdmap_full_try.assert_called_once_with()

    def test_blocklisted_client_connects_again(self):
        for own, entries, removed in (
            ("127.0.0.1:0/7", [], []),
            ("127.0.0.1:0/7", ["127.0.0.1:0/7", "127.0.0.2:0/7"], ["127.0.0.1:0/7"]),
            ("[v2:127.0.0.1:0/7,v1:127.0.0.1:0/7]", ["127.0.0.1:0/0"], ["127.0.0.1:0/0"]),
            ("[v2:[2001:db8::1]:0/7]", ["[2001:db8::1]:0/7"], ["[2001:db8::1]:0/7"]),
        ):
            self.connection.get_addrs.return_value = own
            self.answers["osd blocklist ls"] = (0, [{"addr": entry} for entry in entries], "")
            before = self.lib.rados.Rados.call_count
            self.connection.mon_command.reset_mock()
            with (
                self.assertRaisesRegex(exception.BackendUnreachable, "blocklisted itself"),
                self.cluster.errors("X failed"),
            ):
                raise self.lib.rados.Error("shut down", errno.ESHUTDOWN)
            self.cluster.read("df")
            lines = [json.loads(call.args[0]) for call in self.connection.mon_command.mock_calls]
            changes = [line["addr"] for line in lines if line.get("blocklistop") == "rm"]
            self.assertEqual(removed, changes)
            self.assertLessEqual(self.lib.rados.Rados.call_count, before + 2)
            self.assertGreater(self.lib.rados.Rados.call_count, before)

    def test_connection_ends_when_its_last_user_has_ended(self):
        with self.cluster.pool("volumes"):
            self.cluster.close()
            self.connection.shutdown.assert_not_called()
        self.connection.shutdown.assert_called_once_with()
        self.cluster.close()
        self.cluster.read("df")
        self.assertEqual(2, self.lib.rados.Rados.call_count)
        self.cluster.close()
        self.assertEqual(2, self.connection.shutdown.call_count)

    def test_connection_that_fails_leaves_no_threads(self):
        self.connection.connect.side_effect = self.lib.rados.TimedOut("timed out", 110)
        with self.assertRaises(exception.BackendUnreachable):
            self.cluster.read("df")
        self.connection.shutdown.assert_called_once_with()

    def test_user_with_other_capabilities_has_no_key(self):
        self.answers["auth get-or-create"] = (-errno.EINVAL, None, "key exists but cap differs")
        self.assertIsNone(self.cluster.create_user("client.x", []))

    def test_unknown_user_is_deleted_successfully(self):
        self.answers["auth rm"] = (-errno.ENOENT, None, "none")
        self.cluster.delete_user("client.x")
        self.answers["auth caps"] = (-errno.ENOENT, None, "none")
        self.assertFalse(self.cluster.set_capabilities("client.x", []))

    def test_taken_over_change_asks_nothing(self):
        refuse = mock.Mock(side_effect=exception.BackendError("Another process has taken over."))
        changes = (
            lambda: self.cluster.create_user("client.x", []),
            lambda: self.cluster.set_capabilities("client.x", []),
            lambda: self.cluster.delete_user("client.x"),
            lambda: self.cluster.blocklist("127.0.0.1:0/1"),
        )
        with base.ownership(refuse):
            for change in changes:
                with self.assertRaisesRegex(exception.BackendError, "taken over"):
                    change()
        self.connection.mon_command.assert_not_called()

    def test_sessions_are_those_of_monitors_in_quorum(self):
        monitors = [{"name": "a", "rank": 0}, {"name": "b", "rank": 1}]
        self.answers["mon dump"] = (0, {"mons": monitors, "quorum": [1]}, "")
        client = {
            "global_id": 7,
            "entity_name": "client.x",
            "con_type": "client",
            "addrs": {"addrvec": [{"addr": "127.0.0.1:0", "nonce": 9}]},
        }
        self.answers["sessions"] = (0, [client, {**client, "con_type": "osd"}], "")
        expected = [cluster.Session(7, "client.x", ("127.0.0.1:0/9",))]
        self.assertEqual(expected, self.cluster.sessions())
        self.assertEqual({"target": "b"}, self.connection.mon_command.call_args.kwargs)

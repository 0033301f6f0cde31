# SPDX-License-Identifier: Apache-2.0
"""Order of the changes of a target; test_driver.py has the requests of the driver."""

import unittest
from unittest import mock

from attachd.drivers.tgt import client, parser, targets

SENTINEL = "attachd-sentinel.tgt.a"


def target(*accounts, hosts=("a",)):
    return parser.Target(7, "name", True, {}, (SENTINEL, *accounts), hosts)


class RevokeAllExceptTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.tgtd = mock.create_autospec(client.Tgtd, instance=True)
        self.tgtd.connections.return_value = []
        self.tgtd.timeout = 0.1  # sessions have ended, or never do, slow or not
        self.manager = targets.TargetManager(self.tgtd, "attachd-sentinel.tgt.")

    def asked(self):
        return [(call[0], *call.args[1:]) for call in self.tgtd.mock_calls]

    def test_revoke_forbids_host_before_ending_sessions_and_unbinding(self):
        self.tgtd.named.return_value = [target("u", hosts=("a",))]
        self.manager.revoke_all_except(target("x", "u", hosts=("a", "b")), {"a"}, {"u"})
        self.assertEqual(
            [("forbid", "b"), ("connections",), ("unbind_account", "x", ("u",)), ("named",)],
            self.asked(),
        )

    def test_revoke_unbinds_accounts_at_current_positions(self):
        self.tgtd.named.side_effect = [[target("u", "y")], [target("u")]]
        self.manager.revoke_all_except(target("x", "y", "u"), {"a"}, {"u"})
        unbound = [item for item in self.asked() if item[0] == "unbind_account"]
        self.assertEqual(
            [("unbind_account", "x", ("y", "u")), ("unbind_account", "y", ())], unbound
        )

    def test_revoke_binds_expected_accounts_and_keeps_sentinels(self):
        self.manager.revoke_all_except(target("attachd-sentinel.tgt.b"), {"a"}, {"u"})
        self.assertEqual([("connections",), ("bind_account", "u")], self.asked())

    def test_remove_with_session_that_does_not_end_raises(self):
        self.tgtd.connections.return_value = [parser.Connection(1, 0, "b")]
        with self.assertRaisesRegex(targets.exception.BackendError, "of b does not end"):
            self.manager.remove(target())
        self.tgtd.delete_target.assert_not_called()

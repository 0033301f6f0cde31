# SPDX-License-Identifier: Apache-2.0
"""In what order a target is changed; what the driver asks for is in test_tgt.py."""

import unittest
from unittest import mock

from attachd.drivers.tgt import client, parser, targets

SENTINEL = "attachd-sentinel.tgt.a"


def target(*accounts, hosts=("a",)):
    return parser.Target(7, "name", True, {}, (SENTINEL, *accounts), hosts)


class EvictTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.tgtd = mock.create_autospec(client.Tgtd, instance=True)
        self.tgtd.connections.return_value = []
        self.tgtd.timeout = 0.1  # sessions have ended, or never do, slow or not
        self.manager = targets.TargetManager(self.tgtd, "attachd-sentinel.tgt.")

    def asked(self):
        return [(call[0], *call.args[1:]) for call in self.tgtd.mock_calls]

    def test_a_host_is_refused_before_its_sessions_end_and_its_account_goes(self):
        self.tgtd.named.return_value = [target("u", hosts=("a",))]
        self.manager.revoke_all_except(target("x", "u", hosts=("a", "b")), {"a"}, {"u"})
        self.assertEqual(
            [("forbid", "b"), ("connections",), ("unbind_account", "x", ("u",)), ("named",)],
            self.asked(),
        )

    def test_each_account_is_taken_from_where_it_is_by_then(self):
        self.tgtd.named.side_effect = [[target("u", "y")], [target("u")]]
        self.manager.revoke_all_except(target("x", "y", "u"), {"a"}, {"u"})
        unbound = [each for each in self.asked() if each[0] == "unbind_account"]
        self.assertEqual(
            [("unbind_account", "x", ("y", "u")), ("unbind_account", "y", ())], unbound
        )

    def test_whoever_stays_is_bound_again_and_guards_stay(self):
        self.manager.revoke_all_except(target("attachd-sentinel.tgt.b"), {"a"}, {"u"})
        self.assertEqual([("connections",), ("bind_account", "u")], self.asked())

    def test_a_session_that_does_not_end_is_an_error(self):
        self.tgtd.connections.return_value = [parser.Connection(1, 0, "b")]
        with self.assertRaisesRegex(targets.exception.BackendError, "of b does not end"):
            self.manager.remove(target())
        self.tgtd.delete_target.assert_not_called()

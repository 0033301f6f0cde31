# SPDX-License-Identifier: Apache-2.0
"""Requests to tgtd, and checks of its answers."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers.tgt import client
from attachd.drivers.tgt.control_socket import Code, Mode, Operation, Refused, Request


class TgtdTest(unittest.TestCase):
    """Requests for targets."""

    def setUp(self):
        super().setUp()
        self.tgtd = client.Tgtd("/run/socket", 3, 7.5)
        self.control = self.enterContext(mock.patch.object(client, "Control", autospec=True))
        self.ask = self.control.return_value.ask

    def refuse(self, *answers):
        """Have tgtd refuse the next requests; None: it accepts."""
        self.ask.side_effect = [
            Refused(Request(Mode.TARGET, Operation.NEW), answer) if answer else ""
            for answer in answers
        ]

    def test_failure_raises_error_with_reason(self):
        self.refuse(18)
        with self.assertRaisesRegex(exception.BackendError, "NEW TARGET: error 18") as caught:
            self.tgtd.delete_target(5)
        self.assertFalse(caught.exception.final)

    def test_requests_ignore_codes_of_repeated_request(self):
        gone = {Code.NO_TARGET, Code.NO_SESSION, Code.NO_CONNECTION}
        for passed, call in (
            ({Code.UNIT_EXISTS}, lambda: self.tgtd.new_unit(5, "/file")),
            ({Code.NO_TARGET}, lambda: self.tgtd.delete_target(5)),
            (gone, lambda: self.tgtd.close(5, mock.Mock(sid=1, cid=0))),
        ):
            with self.subTest(passed):
                call()
                self.assertEqual(passed, set(self.ask.call_args.args[0].passed))

    def test_new_target_with_taken_number_tries_another(self):
        self.refuse(Code.TARGET_EXISTS, None)
        tid = self.tgtd.new_target("iqn.x:v")
        tried = [call.args[0].tid for call in self.ask.mock_calls]
        self.assertEqual(tid, tried[-1])
        self.assertEqual(2, len(set(tried)))

    def test_new_target_with_taken_name_raises(self):
        self.refuse(*[Code.TARGET_EXISTS] * 5)
        with self.assertRaisesRegex(exception.BackendError, "iqn.x:v"):
            self.tgtd.new_target("iqn.x:v")

    def test_new_target_that_is_refused_otherwise_raises(self):
        self.refuse(Code.NO_TARGET)
        with self.assertRaisesRegex(Refused, "error 4 .NO_TARGET."):
            self.tgtd.new_target("iqn.x:v")

    def test_new_target_numbers_are_unique(self):
        tids = {self.tgtd.new_target("iqn.x:v") for _ in range(100)}
        self.assertEqual(100, len(tids))

    def test_new_target_numbers_have_prefix_of_local_names(self):
        tids = {self.tgtd.new_target("iqn.x:v") for _ in range(100)}
        self.assertEqual({"3"}, {f"{tid:08x}"[0] for tid in tids})

    def test_too_long_socket_path_is_named(self):
        with self.assertRaisesRegex(exception.BackendError, "too long"):
            client.Tgtd("/" + "x" * 100, 0, 1).check()


class HostsTest(unittest.TestCase):
    """Requests through the socket, for each host."""

    def setUp(self):
        super().setUp()
        self.tgtd = client.Tgtd("/run/socket", 3, 7.5)
        self.control = self.enterContext(mock.patch.object(client, "Control", autospec=True))
        self.ask = self.control.return_value.ask

    def test_control_has_socket_path_and_timeout(self):
        self.tgtd.allow(5, "iqn.x:a")
        self.control.assert_called_once_with("/run/socket.3", 7.5)

    def test_requests_ignore_codes_of_repeated_request(self):
        for passed, call in (
            ({Code.ACL_EXISTS}, lambda: self.tgtd.allow(5, "iqn.x:a")),
            ({Code.NO_ACL}, lambda: self.tgtd.forbid(5, "iqn.x:a")),
            ({Code.USER_EXISTS}, lambda: self.tgtd.new_account("user", "secret")),
            ({Code.USER_EXISTS, Code.NO_USER}, lambda: self.tgtd.bind_account(5, "user")),
            ({Code.NO_USER}, lambda: self.tgtd.delete_account("other")),
            ({Code.NO_USER}, lambda: self.tgtd.delete_account("user")),
        ):
            with self.subTest(passed):
                call()
                self.assertEqual(passed, set(self.ask.call_args.args[0].passed))

    def test_listing_error_raises(self):
        self.ask.return_value = "Account list:\n    user\n"
        self.assertEqual(["user"], self.tgtd.accounts())
        self.ask.side_effect = exception.BackendError("tgtd hung up")
        for call in (self.tgtd.targets, self.tgtd.accounts, lambda: self.tgtd.connections(5)):
            with self.assertRaisesRegex(exception.BackendError, "hung up"):
                call()

    def test_unbind_account_rebinds_later_accounts_from_end(self):
        self.tgtd.unbind_account(5, "b", ("c", "d"))
        groups = self.control.return_value.request_together.call_args.args
        sent = [[(item.operation.name, item.body) for item in group] for group in groups]
        self.assertEqual(
            [
                [("UNBIND", "user=d")],
                [("UNBIND", "user=c")],
                [("UNBIND", "user=b")],
                [("BIND", "user=c"), ("BIND", "user=d")],
            ],
            sent,
        )
        self.assertEqual({5}, {item.tid for group in groups for item in group})

# SPDX-License-Identifier: Apache-2.0
"""Which states of attachments are results of a set, and which are still in work."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import polling
from attachd.api.attachments import set_progress
from attachd.api.attachments.set_progress import Member
from attachd.db.agents import agent_store
from attachd.db.agents.agent_store import Progress
from attachd.tests.fixtures import databases


def progress(state, error=None, *, is_alive=True):
    return Progress(state, error, None, is_alive)


class JudgeTest(unittest.TestCase):
    def judge(self, judge, seen):
        try:
            return judge(Member("v", "a", "node-1"), seen)
        except exception.AttachdError as error:
            return type(error).__name__

    def test_is_attached_by_state(self):
        expected = {
            progress("attached"): True,
            progress("reserved"): False,
            progress("connecting"): False,
            progress("connected"): False,
            progress("connected", "no session"): "AgentError",
            progress("connected", is_alive=False): "AgentUnavailable",
            progress("connect_failed", "no space"): "ConnectFailed",
            progress("connect_unknown"): "ConnectFailed",
            progress("withdrawing"): "Conflict",
            progress("disconnecting"): "Conflict",
            None: "Conflict",
        }
        for seen, result in expected.items():
            self.assertEqual(result, self.judge(set_progress.is_attached, seen), seen)

    def test_is_removed_by_state(self):
        expected = {
            None: True,
            progress("withdrawing"): False,
            progress("withdrawing", "hangs"): "AgentError",
            progress("withdrawing", is_alive=False): "AgentUnavailable",
            progress("disconnecting"): False,
            progress("disconnect_failed"): "DisconnectFailed",
            progress("attached", "in use"): "DeviceBusy",
        }
        for seen, result in expected.items():
            self.assertEqual(result, self.judge(set_progress.is_removed, seen), seen)


class WaitTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.members = [Member("v", "a", "h"), Member("v", "b", "h")]

    def wait(self, *reads, go_on=lambda _failed: True):
        with mock.patch.object(agent_store, "list_progress", side_effect=reads) as call:
            set_progress.wait(self.members, set_progress.is_attached, go_on)
        return call.call_count

    def test_wait_ends_when_all_have_a_result(self):
        attached, failed = progress("attached"), progress("connect_failed", "full")
        reads = self.wait(
            {"a": attached, "b": progress("connecting")},
            {"b": progress("connected")},
            {"b": failed},
        )
        self.assertEqual(3, reads)
        first, second = self.members
        self.assertIsNone(first.error)
        self.assertRegex(f"{second.error}", "full")

    def test_wait_ends_when_nothing_is_waited_for(self):
        seen = {"a": progress("connect_failed"), "b": progress("connecting")}
        self.assertEqual(1, self.wait(seen, go_on=lambda failed: not failed))

    def test_wait_without_result_in_time_is_a_timeout(self):
        with mock.patch.object(polling, "wait_while", return_value=False):
            set_progress.wait(self.members, set_progress.is_attached, lambda _failed: True)
        self.assertIsInstance(self.members[1].error, exception.AgentTimeout)

    def test_member_that_has_failed_before_is_not_read(self):
        self.members[1].error = exception.Conflict(reason="x")
        self.assertEqual(1, self.wait({"a": progress("attached")}))

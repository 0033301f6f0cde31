# SPDX-License-Identifier: Apache-2.0
"""Whom a manager tells to look, and that nothing comes of it if they do not hear."""

import unittest
from unittest import mock

from attachd import exception
from attachd.manager import nudging
from attachd.rpc import agent_api
from attachd.states import AttachmentState


def row(state, agent="node-1"):
    return {"id": f"of {agent}", "agent": agent, "state": state}


class AgentsOfTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.nudge = self.enterContext(mock.patch.object(agent_api, "request_reconcile"))

    def told(self):
        return [call.args[1:] for call in self.nudge.call_args_list]

    def test_those_are_told_who_may_have_a_device(self):
        for state in AttachmentState:
            nudging.agents_of([row(state.value, state.value), row(state.value, None)])
        names = {host for host, _attachment in self.told()}
        self.assertEqual({"connected", "attached", "withdrawing"}, names)

    def test_one_who_does_not_hear_keeps_nobody_from_hearing(self):
        self.nudge.side_effect = [
            exception.AgentUnavailable(host="node-1", since="yet"),
            exception.Unavailable(reason="The queue is away."),
            RuntimeError("what is that?"),
            None,
        ]
        hosts = ["node-1", "node-2", "node-3", "node-4"]
        with self.assertLogs(nudging.LOG.logger, "INFO") as logged:
            nudging.agents_of([row("attached", host) for host in hosts])
        self.assertEqual([(host, f"of {host}") for host in hosts], self.told())
        self.assertEqual(3, len(logged.records))

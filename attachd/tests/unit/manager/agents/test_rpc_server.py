# SPDX-License-Identifier: Apache-2.0
"""A manager process listens to agents until it is stopped, whether the message queue answers."""

import threading
import unittest
from unittest import mock

from attachd.conf import CONF
from attachd.manager.agents.endpoint import Registry
from attachd.manager.agents.rpc_server import THREADS, Desk
from attachd.rpc import agent_manager_api
from attachd.tests.wait import TIMEOUT


class DeskTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.server = mock.Mock()
        self.started = threading.Event()
        self.server.start.side_effect = lambda **_: self.started.set()
        patched = mock.patch("attachd.rpc.transport.get_server", return_value=self.server)
        self.made = patched.start()
        self.addCleanup(patched.stop)
        self.desk = Desk()

    def test_all_processes_of_a_machine_share_a_queue(self):
        (endpoint, name, topic, patience) = self.made.call_args.args
        self.assertIsInstance(endpoint, Registry)
        self.assertEqual((CONF.host, CONF.agent.registry_topic), (name, topic))
        self.assertEqual(agent_manager_api.TIMEOUT, patience)

    def test_it_listens_until_it_is_stopped(self):
        self.desk.start()
        self.assertTrue(self.started.wait(TIMEOUT))
        self.desk._thread.join(TIMEOUT)
        self.server.start.assert_called_once_with(override_pool_size=THREADS)
        self.server.stop.assert_not_called()
        self.desk.stop()
        self.assertEqual(["start", "stop", "wait"], [each[0] for each in self.server.mock_calls])

    def test_a_message_queue_that_does_not_answer_keeps_nobody_from_ending(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.server.start.side_effect = lambda **_: gate.wait(TIMEOUT)
        self.desk.start()
        self.desk.stop()
        self.server.stop.assert_not_called()
        gate.set()
        self.desk._thread.join(TIMEOUT)
        self.server.stop.assert_called_once_with()

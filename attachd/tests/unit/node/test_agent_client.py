# SPDX-License-Identifier: Apache-2.0
"""Answers of an agent as its callers get them."""

from pathlib import Path
import socket
import threading
import unittest
from unittest import mock

from attachd.agent.local_socket import CallError, Code, LocalSocket
from attachd.node import agent_client
from attachd.node.agent_client import AgentClient, DeviceInfo, GrownDevice, HostInfo
from attachd.tests.fixtures.lifetime import temp_dir

_DEVICE = {"volume_id": "v", "path": "/dev/sdx", "mode": "rw", "size_bytes": 5}


class AgentClientTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = temp_dir(self) / "agent.sock"
        self.agent = AgentClient(self.path)

    def serve(self, **calls):
        served = LocalSocket(self.path, calls)
        self.addCleanup(served.stop)
        served.start()

    def assert_refused(self, code, message, call, *arguments):
        with self.assertRaisesRegex(CallError, message) as raised:
            call(*arguments)
        self.assertEqual(code, raised.exception.kind)

    def test_host_is_read(self):
        values = {"initiator": "iqn.x", "attachments": 1, "max_attachments": 28}
        self.serve(host=lambda _: {"name": "node-1", "state_path": "/var/x", **values})
        self.assertEqual(HostInfo("node-1", "iqn.x", Path("/var/x"), 28), self.agent.get_host())

    def test_device_is_read_with_its_condition(self):
        call = mock.Mock()
        self.serve(device=call)
        paths = [{"name": "sda", "state": "active"}, {"name": "sdb", "state": "failed"}]
        for condition, error in (
            ({"paths": paths[:1], "error": None}, None),
            ({"paths": paths, "error": None}, "Paths have failed: sdb."),
            ({"paths": paths, "error": "why"}, "why"),
        ):
            call.return_value = {**_DEVICE, "condition": condition}
            expected = DeviceInfo(**_DEVICE, error=error)
            self.assertEqual(expected, self.agent.get_device("a", 7.5))
        call.assert_called_with({"attachment_id": "a", "timeout": 7.5})

    def test_grown_device_is_read(self):
        grown = {"size_bytes": 1, "volume_bytes": 2, "is_shared": True}
        self.serve(grow=lambda _: grown)
        self.assertEqual(GrownDevice(1, 2, is_shared=True), self.agent.grow("a", 0))

    def test_error_has_code_and_message(self):
        self.serve(host=mock.Mock(side_effect=CallError(Code.NOT_READY, "why")))
        self.assert_refused(Code.NOT_READY, "why", self.agent.get_host)

    def test_agent_that_is_away_is_unavailable(self):
        self.assert_refused(Code.UNAVAILABLE, "Start it", self.agent.get_host)

    def test_agent_that_does_not_answer_is_unavailable(self):
        self.enterContext(mock.patch.object(agent_client, "_MARGIN", 0.1))
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(f"{self.path}")
            silent.listen()
            self.assert_refused(Code.UNAVAILABLE, "timed out", self.agent.get_host)

    def test_agent_that_ends_in_between_is_unavailable(self):
        with socket.socket(socket.AF_UNIX) as ending:
            ending.bind(f"{self.path}")
            ending.listen()

            def end():
                ending.accept()[0].close()

            thread = threading.Thread(target=end)
            thread.start()
            self.addCleanup(thread.join)
            self.assert_refused(Code.UNAVAILABLE, "does not answer", self.agent.get_host)

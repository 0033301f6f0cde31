# SPDX-License-Identifier: Apache-2.0
"""Callers of the socket get one answer each, and hostile ones a clear error."""

import json
import os
from pathlib import Path
import socket
import stat
import threading
import time
import unittest
from unittest import mock

from attachd import exception
from attachd.agent import local_socket
from attachd.agent.local_socket import CallError, Code, LocalSocket
from attachd.linux import unix_sockets
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.wait import TIMEOUT


def fail(error):
    """Return a call that raises an error."""
    return mock.Mock(side_effect=error)


class LocalSocketTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = temp_dir(self) / "run" / "agent.sock"
        self.calls = {"echo": dict}

    def serve(self):
        served = LocalSocket(self.path, self.calls)
        self.addCleanup(served.stop)
        served.start()
        return served

    def connect(self):
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(caller.close)
        caller.settimeout(TIMEOUT)
        caller.connect(f"{self.path}")
        return caller

    def send(self, data):
        """Send bytes and return the answer."""
        caller = self.connect()
        caller.sendall(data)
        with caller.makefile("rb") as answers:
            return json.loads(answers.readline())

    def call(self, name, **arguments):
        request = {"version": 1, "call": name, "arguments": arguments}
        return self.send(json.dumps(request).encode() + b"\n")

    def test_call_returns_result(self):
        self.serve()
        expected = {"version": 1, "result": {"a": "b"}}
        self.assertEqual(expected, self.call("echo", a="b"))

    def test_socket_is_for_its_owner_alone(self):
        self.serve()
        self.assertEqual(0o600, stat.S_IMODE(self.path.stat().st_mode))
        self.assertEqual([self.path], list(self.path.parent.iterdir()))

    def test_other_user_is_refused(self):
        uid = os.geteuid() + 4711
        self.serve()
        with mock.patch.object(unix_sockets, "get_peer", return_value=unix_sockets.Peer(1, uid)):
            answer = self.call("echo")
        self.assertEqual("forbidden", answer["error"]["code"])
        self.assertIn(f"User {uid}", answer["error"]["message"])

    def test_malformed_requests_get_an_error(self):
        self.serve()
        for request, code, message in (
            (b"\n", "invalid_request", "not JSON"),
            (b"[" * 4000 + b"\n", "invalid_request", "not JSON"),
            (b"\xff\n", "invalid_request", "not JSON"),
            (b"1\n", "invalid_request", "not an object"),
            (b"{}\n", "unsupported_version", "version 1"),
            (b'{"version": 2, "call": "echo"}\n', "unsupported_version", "version 1"),
            (b'{"version": 1, "call": 1}\n', "invalid_request", "a string"),
            (b'{"version": 1, "call": "echo", "arguments": []}\n', "invalid_request", "object"),
            (b'{"version": 1, "call": "x"}\n', "invalid_request", "no call 'x', only echo"),
            (b"x" * (local_socket.MAX_REQUEST + 1), "invalid_request", "4096 bytes"),
        ):
            with self.subTest(request=request[:40]):
                error = self.send(request)["error"]
                self.assertEqual(code, error["code"])
                self.assertIn(message, error["message"])

    def test_caller_that_sends_nothing_gets_an_error(self):
        self.enterContext(mock.patch.object(local_socket, "REQUEST_TIMEOUT", 0.1))
        self.serve()
        self.assertEqual("invalid_request", self.send(b"{")["error"]["code"])

    def test_caller_that_sends_slowly_is_cut_off(self):
        self.enterContext(mock.patch.object(local_socket, "REQUEST_TIMEOUT", 0.3))
        self.serve()
        caller = self.connect()
        with self.assertRaises(OSError):
            for _ in range(local_socket.MAX_REQUEST):
                caller.sendall(b"{")
                time.sleep(0.05)  # Much less than a request may take.
        self.assertEqual({}, self.call("echo")["result"])

    def test_errors_of_calls_are_distinguished(self):
        reason = {"reason": "why"}
        for error, code in (
            (CallError(Code.NOT_READY, "why"), "not_ready"),
            (exception.Unavailable(**reason), "unavailable"),
            (exception.LocalConflict(**reason), "busy"),
            (exception.GrowthNeedsDetach(**reason), "detach_first"),
            (exception.HostError(**reason), "failed"),
        ):
            self.calls[code] = fail(error)
        self.serve()
        for code in list(self.calls)[1:]:
            answer = self.call(code)["error"]
            self.assertEqual((code, "why"), (answer["code"], answer["message"]))

    def test_unexpected_error_is_logged_and_not_shown(self):
        self.calls["echo"] = fail(KeyError("auth_password"))
        self.serve()
        with self.assertLogs("attachd.agent.local_socket", "ERROR"):
            error = self.call("echo")["error"]
        self.assertEqual("failed", error["code"])
        self.assertNotIn("auth_password", error["message"])

    def test_too_many_callers_are_refused(self):
        self.enterContext(mock.patch.object(local_socket, "MAX_CONNECTIONS", 1))
        entered, release = threading.Event(), threading.Event()
        self.addCleanup(release.set)

        def wait(_arguments):
            entered.set()
            release.wait(TIMEOUT)
            return {}

        self.calls["wait"] = wait
        self.serve()
        first = self.connect()
        first.sendall(b'{"version": 1, "call": "wait"}\n')
        self.assertTrue(entered.wait(TIMEOUT))
        with self.connect().makefile("rb") as answers:
            self.assertEqual("busy", json.loads(answers.readline())["error"]["code"])
        release.set()
        with first.makefile("rb") as answers:
            self.assertEqual({}, json.loads(answers.readline())["result"])

    def test_caller_that_leaves_does_no_harm(self):
        self.serve()
        caller = self.connect()
        caller.sendall(b'{"version": 1, "call": "echo"}\n')
        caller.close()
        self.assertEqual({}, self.call("echo")["result"])

    def test_socket_of_ended_process_is_replaced(self):
        self.serve().stop()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(f"{self.path}")
        self.serve()
        self.assertEqual({}, self.call("echo")["result"])

    def test_stopped_socket_is_gone(self):
        self.serve().stop()
        self.assertFalse(self.path.exists())

    def test_path_that_cannot_be_served_is_refused(self):
        self.serve()
        folder = self.path.parent
        (folder / "file").write_text("data")
        for path, message in (
            (self.path, "Another process serves"),
            (folder / "file", "no socket"),
            (folder / "file" / "inside", "cannot be made"),
            (Path("relative"), "absolute path"),
            (folder / ("x" * 100), "103 bytes"),
        ):
            with self.assertRaisesRegex(exception.HostError, message):
                LocalSocket(path, {})
        self.assertEqual("data", (folder / "file").read_text())

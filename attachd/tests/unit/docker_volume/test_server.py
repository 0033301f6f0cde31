# SPDX-License-Identifier: Apache-2.0
import http.client
import itertools
import json
import os
import socket
import threading
import time
import unittest
from unittest import mock

from attachd.docker_volume import server
from attachd.linux import unix_sockets
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.wait import TIMEOUT


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("plugin", timeout=TIMEOUT)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(f"{self._path}")


class _Plugin:
    """Returns what it is asked; a call "Wait" waits.

    :ivar entered: is set when a call waits
    """

    def __init__(self):
        self.entered, self.release = threading.Event(), threading.Event()

    def serve(self, name, fields, caller):
        if name == "Wait":
            self.caller = caller
            self.entered.set()
            self.release.wait(TIMEOUT)
        return {"Err": fields.get("fail", ""), "seen": [name, fields, caller.process]}


class ServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = temp_dir(self) / "docker.sock"
        self.plugin = _Plugin()
        self.addCleanup(self.plugin.release.set)

    def start(self, workers=4):
        listener = unix_sockets.listen(self.path, 8, "--socket")
        made = server.Server(listener, self.plugin, workers)
        made.start()
        self.addCleanup(made.stop)
        return made

    def post(self, name, body=b"{}", method="POST", **headers):
        connection = _Connection(self.path)
        self.addCleanup(connection.close)
        connection.request(method, f"/{name}", body, headers)
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if method == "POST" else text

    def test_call_has_name_fields_and_process(self):
        self.start()
        status, answer = self.post("VolumeDriver.Get", b'{"Name": "data"}')
        self.assertEqual((200, ""), (status, answer["Err"]))
        self.assertEqual(["VolumeDriver.Get", {"Name": "data"}, os.getpid()], answer["seen"])
        self.assertEqual({}, self.post("Plugin.Activate", b"")[1]["seen"][1])

    def test_error_has_status_and_reason(self):
        self.start()
        status, answer = self.post("VolumeDriver.Get", b'{"fail": "There is none."}')
        self.assertEqual((500, "There is none."), (status, answer["Err"]))

    def test_malformed_requests_are_refused(self):
        self.start()
        for body in (b"[]", b"{", b"[" * 9999, b"\xff"):
            self.assertEqual(400, self.post("VolumeDriver.Get", body)[0])
        too_long = f"{server.MAX_REQUEST + 1}"
        for length in (too_long, "-1", "x"):
            status, answer = self.post("VolumeDriver.Get", b"", **{"Content-Length": length})
            self.assertEqual(413, status)
            self.assertIn("at most", answer["Err"])
        self.assertEqual(501, self.post("VolumeDriver.Get", None, "GET")[0])

    def test_silent_caller_is_left_and_others_are_served(self):
        self.limit_requests()
        self.start()
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(f"{self.path}")
            self.assertEqual(200, self.post("VolumeDriver.Get")[0])

    def limit_requests(self):
        """Have requests end soon, and one at a time."""
        self.enterContext(mock.patch.object(server, "REQUEST_TIMEOUT", 0.3))
        self.enterContext(mock.patch.object(server, "MAX_CONNECTIONS", 1))

    def start_slow_sender(self, text):
        """Have a caller send a text again and again, a byte at a time, until it is cut off."""
        slow = socket.socket(socket.AF_UNIX)
        self.addCleanup(slow.close)
        slow.connect(f"{self.path}")
        is_cut_off = threading.Event()

        def send():
            try:
                for byte in itertools.cycle(text):
                    slow.sendall(bytes([byte]))
                    time.sleep(0.05)  # Much less than a request may take.
            except OSError:
                is_cut_off.set()

        threading.Thread(target=send).start()
        return is_cut_off

    def test_slow_senders_of_each_part_are_left_and_others_are_served(self):
        self.limit_requests()
        self.start()
        line, headers = b"POST /Wait HTTP/1.1\r\n", b"Content-Length: 60000\r\n"
        for text in (b"P", line + headers, line + headers + b"\r\n{"):
            with self.subTest(text):
                is_cut_off = self.start_slow_sender(text)
                self.assertEqual(200, self.post("VolumeDriver.Get")[0])
                self.assertTrue(is_cut_off.wait(TIMEOUT))

    def test_callers_that_send_have_no_worker(self):
        self.start(workers=1)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(f"{self.path}")
            began = time.monotonic()
            self.assertEqual(200, self.post("VolumeDriver.Get")[0])
        self.assertLess(time.monotonic() - began, server.REQUEST_TIMEOUT)

    def test_stop_ends_while_callers_wait_for_connections(self):
        self.enterContext(mock.patch.object(server, "MAX_CONNECTIONS", 1))
        self.enterContext(mock.patch.object(server, "GRACE", 0.1))
        made = self.start()
        with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
            for caller in (first, second):
                caller.connect(f"{self.path}")
            began = time.monotonic()
            made.stop()
        self.assertLess(time.monotonic() - began, server.REQUEST_TIMEOUT)

    def test_callers_beyond_limit_wait(self):
        self.start(workers=1)
        first = threading.Thread(target=self.post, args=("Wait",))
        first.start()
        self.addCleanup(first.join)
        self.assertTrue(self.plugin.entered.wait(TIMEOUT))
        second = _Connection(self.path)
        self.addCleanup(second.close)
        second.request("POST", "/VolumeDriver.Get", b"{}")
        second.sock.settimeout(0.2)  # It is not answered; that is what is tested.
        with self.assertRaises(TimeoutError):
            second.sock.recv(1)
        second.sock.settimeout(TIMEOUT)
        self.plugin.release.set()
        self.assertEqual(200, second.getresponse().status)

    def test_stop_waits_for_calls_and_gives_up(self):
        made = self.start(workers=1)
        first = threading.Thread(target=self.post, args=("Wait",))
        first.start()
        self.addCleanup(first.join)
        self.assertTrue(self.plugin.entered.wait(TIMEOUT))
        with (
            mock.patch.object(server, "GRACE", 0.1),
            self.assertLogs("attachd.docker_volume.server", "WARNING"),
        ):
            made.stop()
        self.plugin.release.set()

    def test_caller_that_leaves_does_no_harm(self):
        self.start()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(f"{self.path}")
            caller.sendall(b"POST /Wait HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            self.assertTrue(self.plugin.entered.wait(TIMEOUT))
            self.assertTrue(self.plugin.caller.is_waiting())
        self.assertFalse(self.plugin.caller.is_waiting())
        self.plugin.release.set()
        self.assertEqual(200, self.post("VolumeDriver.Get")[0])

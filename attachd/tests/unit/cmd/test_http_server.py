# SPDX-License-Identifier: Apache-2.0

import gc
import socket
import threading
import unittest
from unittest import mock

import requests

from attachd.cmd import http_server
from attachd.tests.wait import TIMEOUT, wait_until


class Application:
    """Answers with the request body; /wait answers when the gate is open."""

    def __init__(self):
        self.entered = threading.Event()
        self.gate = threading.Event()

    def __call__(self, environ, start_response):
        if environ["PATH_INFO"] == "/wait":
            self.entered.set()
            self.gate.wait(TIMEOUT)
        body = environ["wsgi.input"].read() or environ["PATH_INFO"].encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


class ServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.unfreeze)
        self.application = Application()
        self.server = http_server.Server(self.application, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.addCleanup(self.end)

    def end(self):
        self.application.gate.set()
        self.server.stop()
        self.thread.join(TIMEOUT)
        self.assertFalse(self.thread.is_alive())

    def test_connection_is_reused_for_hundreds_of_requests(self):
        with requests.Session() as session:
            for number in range(300):
                sent = f"{number}".encode() * (number % 50 + 1)
                answer = session.post(f"{self.url}/", data=sent, timeout=TIMEOUT)
                self.assertEqual(sent, answer.content)
            pools = session.get_adapter(self.url).poolmanager.pools
            (pool,) = [pools[key] for key in pools.keys()]  # noqa: SIM118  not a mapping
            self.assertEqual((1, 300), (pool.num_connections, pool.num_requests))

    def test_request_in_progress_is_answered_after_stop(self):
        answers = []
        client = threading.Thread(
            target=lambda: answers.append(requests.get(f"{self.url}/wait", timeout=TIMEOUT))
        )
        client.start()
        self.assertTrue(self.application.entered.wait(TIMEOUT))
        self.server.stop()
        wait_until(self.is_refused)  # the socket is closed within a turn of the loop
        self.assertTrue(self.thread.is_alive())
        self.application.gate.set()
        client.join(TIMEOUT)
        self.assertEqual([b"/wait"], [answer.content for answer in answers])

    def is_refused(self):
        try:
            requests.get(f"{self.url}/", timeout=TIMEOUT)
        except requests.ConnectionError:
            return True
        return False

    def test_idle_client_does_not_delay_stop(self):
        with (
            requests.Session() as session,
            mock.patch.object(http_server, "SHUTDOWN_TIMEOUT", 10 * TIMEOUT),
        ):
            session.get(f"{self.url}/", timeout=TIMEOUT)
            self.end()

    def test_hanging_request_is_abandoned_after_timeout(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertTrue(self.application.entered.wait(TIMEOUT))
            with mock.patch.object(http_server, "SHUTDOWN_TIMEOUT", 0.2):  # slow or not
                self.server.stop()
                self.thread.join(TIMEOUT)
            self.assertFalse(self.thread.is_alive())

    def test_too_large_body_is_refused_before_reading(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            size = http_server.LARGEST_BODY + 1
            client.sendall(
                f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
            )
            client.settimeout(TIMEOUT)
            self.assertIn(b"413", client.recv(4096))

    def test_port_in_use_raises_at_start(self):
        with self.assertRaises(OSError):
            http_server.Server(self.application, "127.0.0.1", self.server.port)

    def test_foreign_address_raises_at_start(self):
        with self.assertRaises(OSError):
            http_server.Server(self.application, "192.0.2.1", 0)

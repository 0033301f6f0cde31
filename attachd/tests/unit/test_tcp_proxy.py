# SPDX-License-Identifier: Apache-2.0
"""The TCP proxy of the tests."""

import contextlib
import socket
import socketserver
import struct
import threading
from typing import Any
import unittest

from attachd.tests.fixtures import tcp_proxy
from attachd.tests.wait import TIMEOUT

SHORT = 0.3
DIE = b"die\n"
AT_ONCE = struct.pack("ii", 1, 0)


class Echo(socketserver.StreamRequestHandler):
    """Echoes each line in two pieces, and answers one special line with a reset."""

    server: "Server"

    def handle(self) -> None:
        """Answer until the client disconnects."""
        with contextlib.suppress(OSError):
            for line in self.rfile:
                self.server.received.append(line)
                if line == DIE:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                    return
                self.wfile.write(line[:2])
                self.wfile.flush()
                self.wfile.write(line[2:])


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.received: list[bytes] = []

    def shutdown_request(self, request: Any) -> None:
        """End a connection, with a reset after the special line."""
        if DIE in self.received:
            self.close_request(request)  # without a shutdown before it
        else:
            super().shutdown_request(request)


class ProxyTest(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        port = self.server.server_address[1]
        self.proxy, url = tcp_proxy.in_front_of(self, f"kind://us:pa@127.0.0.1:{port}/name?a=b", 5)
        self.assertEqual(f"kind://us:pa@127.0.0.1:{self.proxy.port}/name?a=b", url)

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=TIMEOUT)
        self.addCleanup(made.close)
        return made

    def ask(self, connection: socket.socket, line: bytes = b"hello\n") -> bytes:
        connection.sendall(line)
        return self.answer(connection, len(line))

    def answer(self, connection: socket.socket, size: int) -> bytes:
        answer = b""
        while len(answer) < size:
            piece = connection.recv(100)
            if not piece:
                raise ConnectionResetError
            answer += piece
        return answer

    def test_proxy_forwards_data(self) -> None:
        connection = self.connect()
        self.assertEqual(b"hello\n", self.ask(connection))
        self.assertEqual(b"again\n", self.ask(connection, b"again\n"))
        self.assertEqual((1, 1, 0), (self.proxy.open, self.proxy.connected, self.proxy.dropped))

    def test_proxy_forwards_reset_of_server(self) -> None:
        connection = self.connect()
        with self.assertRaises(ConnectionResetError):
            self.ask(connection, DIE)

    def test_proxy_forwards_half_close(self) -> None:
        connection = self.connect()
        self.ask(connection)
        connection.shutdown(socket.SHUT_WR)
        self.assertEqual(b"", connection.recv(1))

    def test_proxy_refuses_and_returns_at_same_port(self) -> None:
        connection = self.connect()
        self.ask(connection)
        for _ in range(3):
            self.proxy.refuse()
            with self.assertRaises(ConnectionRefusedError):
                self.connect()
            self.proxy.pass_on()
            self.assertEqual(b"hello\n", self.ask(self.connect()))
        with self.assertRaises(OSError):
            self.ask(connection)

    def test_proxy_freezes_and_thaws_connections(self) -> None:
        old = self.connect()
        self.ask(old)
        self.proxy.freeze()
        new = self.connect()
        for item in (old, new):
            item.settimeout(SHORT)
            with self.assertRaises(TimeoutError):
                self.ask(item)
        self.assertEqual(1, len(self.server.received))
        self.proxy.pass_on()
        for item in (old, new):
            item.settimeout(TIMEOUT)
            self.assertEqual(b"hello\n", self.answer(item, 6))

    def test_proxy_cuts_existing_connections(self) -> None:
        old = self.connect()
        self.ask(old)
        self.proxy.cut()
        with self.assertRaises(OSError):
            self.ask(old)
        self.assertEqual(b"hello\n", self.ask(self.connect()))

    def test_proxy_drops_responses(self) -> None:
        self.proxy.drop_responses(1.0)
        with self.assertRaises(OSError):
            self.ask(self.connect())
        self.assertEqual([b"hello\n"], self.server.received)
        self.assertEqual(1, self.proxy.dropped)

    def test_dropped_responses_are_repeatable_by_seed(self) -> None:
        def drawn() -> list[bool]:
            proxy, _ = tcp_proxy.in_front_of(self, f"tcp://127.0.0.1:{self.proxy.port}", seed=7)
            proxy.drop_responses(0.5)
            lost = []
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", proxy.port), TIMEOUT) as connection:
                    try:
                        self.ask(connection)
                        lost.append(False)
                    except OSError:
                        lost.append(True)
            self.assertEqual(sum(lost), proxy.dropped)
            return lost

        first = drawn()
        self.assertEqual(first, drawn())
        self.assertEqual({True, False}, set(first))

# SPDX-License-Identifier: Apache-2.0
"""The proxy does to connections what it is told to."""

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
    """Answers each line with itself, in two pieces, and one of them by a reset."""

    server: "Server"

    def handle(self) -> None:
        """Answer until the client has gone."""
        with contextlib.suppress(OSError):
            for line in self.rfile:
                self.server.heard.append(line)
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
        self.heard: list[bytes] = []

    def shutdown_request(self, request: Any) -> None:
        """End a connection as it wants to be ended."""
        if DIE in self.heard:
            self.close_request(request)  # and not by a word that there is no more
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

    def test_it_passes_on(self) -> None:
        connection = self.connect()
        self.assertEqual(b"hello\n", self.ask(connection))
        self.assertEqual(b"again\n", self.ask(connection, b"again\n"))
        self.assertEqual((1, 1, 0), (self.proxy.open, self.proxy.connected, self.proxy.dropped))

    def test_it_passes_on_that_the_server_has_died(self) -> None:
        connection = self.connect()
        with self.assertRaises(ConnectionResetError):
            self.ask(connection, DIE)

    def test_it_passes_on_that_a_side_has_ended(self) -> None:
        connection = self.connect()
        self.ask(connection)
        connection.shutdown(socket.SHUT_WR)
        self.assertEqual(b"", connection.recv(1))

    def test_it_refuses_and_resets_and_comes_back_at_the_same_port(self) -> None:
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

    def test_it_freezes_old_and_new_connections_and_thaws_them(self) -> None:
        old = self.connect()
        self.ask(old)
        self.proxy.freeze()
        new = self.connect()
        for each in (old, new):
            each.settimeout(SHORT)
            with self.assertRaises(TimeoutError):
                self.ask(each)
        self.assertEqual(1, len(self.server.heard))
        self.proxy.pass_on()
        for each in (old, new):
            each.settimeout(TIMEOUT)
            self.assertEqual(b"hello\n", self.answer(each, 6))

    def test_it_cuts_the_connections_that_there_are(self) -> None:
        old = self.connect()
        self.ask(old)
        self.proxy.cut()
        with self.assertRaises(OSError):
            self.ask(old)
        self.assertEqual(b"hello\n", self.ask(self.connect()))

    def test_it_drops_answers_to_what_the_server_has_done(self) -> None:
        self.proxy.drop_responses(1.0)
        with self.assertRaises(OSError):
            self.ask(self.connect())
        self.assertEqual([b"hello\n"], self.server.heard)
        self.assertEqual(1, self.proxy.dropped)

    def test_what_it_drops_is_repeatable(self) -> None:
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

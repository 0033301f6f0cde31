# SPDX-License-Identifier: Apache-2.0
"""Tests of the cache of validated tokens: in memcached, in the process, or none."""

import socketserver
import threading
import unittest
from unittest import mock

from keystonemiddleware import auth_token

from attachd.api import app
from attachd.tests.fixtures import keystone_api
from attachd.tests.selection import full_only


class Memcached(socketserver.ThreadingTCPServer):
    """As much of memcached's text protocol as a cache of tokens takes."""

    daemon_threads = True

    def __init__(self, test):
        super().__init__(("127.0.0.1", 0), Conversation)
        self.kept = {}
        self.times = []
        self.address = f"127.0.0.1:{self.server_address[1]}"
        test.addCleanup(self.server_close)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        test.addCleanup(self.shutdown)


class Conversation(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            command, *words = line.split()
            if command == b"set":
                key, flags, seconds, size = words
                self.server.kept[key] = (flags, self.rfile.read(int(size) + 2)[:-2])
                self.server.times.append(int(seconds))
                self.wfile.write(b"STORED\r\n")
            else:
                for key in words:
                    if key in self.server.kept:
                        flags, value = self.server.kept[key]
                        head = b"VALUE %s %s %d\r\n" % (key, flags, len(value))
                        self.wfile.write(head + value + b"\r\n")
                self.wfile.write(b"END\r\n")


@full_only("keystone")
class CacheTest(unittest.TestCase):
    def count_questions(self, **options):
        """Ask three times with one token; return how often Keystone was asked about it."""
        api = keystone_api.use(self, **options)
        token = api.keystone.token(api.keystone.user("alice", "member"))
        asked = []
        real = auth_token.AuthProtocol._create_identity_server

        def watched(protocol):
            server = real(protocol)
            verify = server.verify_token
            server.verify_token = lambda *a, **k: asked.append(a) or verify(*a, **k)
            return server

        with mock.patch.object(auth_token.AuthProtocol, "_create_identity_server", watched):
            api.application = app.make_app()
        for _time in range(3):
            self.assertEqual(200, api.request("GET", "/volumes", token=token).status)
        return len(asked)

    def test_token_cache_in_the_process_saves_keystone_requests(self):
        self.assertEqual(1, self.count_questions())

    def test_token_cache_disabled_queries_keystone_each_time(self):
        self.assertEqual(3, self.count_questions(token_cache_time=-1))

    def test_token_cache_in_memcached_is_shared_by_processes(self):
        server = Memcached(self)
        self.assertEqual(1, self.count_questions(memcached_servers=[server.address]))
        self.assertEqual([300], server.times)
        ((_flags, value),) = server.kept.values()
        self.assertIn(b'"token"', value)

    def test_token_cache_in_memcached_may_be_encrypted(self):
        server = Memcached(self)
        options = {"memcache_security_strategy": "ENCRYPT", "memcache_secret_key": "secret"}
        self.assertEqual(1, self.count_questions(memcached_servers=[server.address], **options))
        ((_flags, value),) = server.kept.values()
        self.assertNotIn(b"token", value)

    def test_token_cache_with_memcached_down_is_bypassed(self):
        server = Memcached(self)
        server.shutdown()
        server.server_close()
        self.assertEqual(3, self.count_questions(memcached_servers=[server.address]))

# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path
import socket
import stat
import subprocess
import sys
import unittest

from attachd import exception
from attachd.linux import unix_sockets
from attachd.tests.fixtures.lifetime import temp_dir

_PASSED = """\
import os
from attachd.linux import unix_sockets
os.environ["LISTEN_PID"] = str({pid})
passed = unix_sockets.get_passed()
print(passed is not None)
"""


class UnixSocketsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = temp_dir(self) / "a.sock"

    def listen(self, path=None):
        made = unix_sockets.listen(path or self.path, 1, "--socket")
        self.addCleanup(made.close)
        return made

    def test_peer_is_process_that_has_connected(self):
        listener = self.listen()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(f"{self.path}")
            connection, _address = listener.accept()
            with connection:
                peer = unix_sockets.get_peer(connection)
        self.assertEqual((os.getpid(), os.geteuid()), peer)

    def test_request_is_read_until_time_limit_of_all_parts(self):
        caller, connection = socket.socketpair()
        with caller, connection, unix_sockets.open_request(connection, 0.3) as request:
            caller.sendall(b"line\nmore")
            self.assertEqual(b"line\n", request.readline())
            with self.assertRaises(TimeoutError):
                while True:
                    caller.sendall(b"x")
                    request.read(1)
            with self.assertRaises(TimeoutError):
                request.read(1000)

    def test_socket_is_for_its_owner_and_replaces_stale_one(self):
        self.listen().close()
        self.listen()
        self.assertEqual(0o600, stat.S_IMODE(self.path.stat().st_mode))

    def test_impossible_path_is_refused(self):
        self.listen()
        for path, message in (
            (self.path, "Another process"),
            (Path("relative"), "--socket = relative has to be an absolute path"),
            (self.path.with_name("x" * 100), "103 bytes"),
        ):
            with self.assertRaisesRegex(exception.HostError, message):
                self.listen(path)

    def test_passed_socket_is_used_by_named_process_only(self):
        listener = self.listen()
        for pid, expected in (("os.getpid()", "True"), ("1", "False")):
            # As systemd does: the socket is descriptor 3.
            line = (
                "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"
            )
            words = [sys.executable, "-c", _PASSED.format(pid=pid)]
            done = subprocess.run(
                [sys.executable, "-c", line, f"{listener.fileno()}", *words],
                pass_fds=[listener.fileno()],
                env={**os.environ, "LISTEN_FDS": "1"},
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(expected, done.stdout.strip())

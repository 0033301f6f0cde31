# SPDX-License-Identifier: Apache-2.0
"""The sandbox, in a process of its own."""

import platform
import subprocess
import sys
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import sandbox

_PROGRAM = """
import os, socket, sys, threading
from attachd.drivers import sandbox

asked, answered = threading.Event(), []

def read():
    asked.wait()
    attempt(lambda: open("/etc/hostname"))

def attempt(call):
    try:
        call()
        answered.append("done")
    except OSError as error:
        answered.append(error.strerror)

thread = threading.Thread(target=read)
thread.start()
sandbox.enter()
asked.set()
thread.join()
attempt(lambda: open("/tmp/x", "w"))
attempt(lambda: os.listdir("/"))
attempt(lambda: os.execv("/bin/true", ["true"]))
attempt(lambda: os.unlink("/tmp/x"))
attempt(lambda: socket.create_server(("127.0.0.1", 0)).close())
attempt(lambda: os.write(1, b""))
print(answered, os.geteuid() != 0)
"""


class SandboxTest(unittest.TestCase):
    @unittest.skipUnless(platform.machine() in sandbox._CALLS, "for other machines")
    def test_all_threads_lose_files_and_programs_and_keep_the_network(self):
        line = [sys.executable, "-P", "-c", _PROGRAM]
        output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        refused = ["Permission denied"] * 5
        self.assertEqual(f"{[*refused, 'done', 'done']} True\n", output)

    def test_unknown_machine_is_refused_before_anything_is_given_up(self):
        with (
            mock.patch.object(platform, "machine", return_value="m68k"),
            self.assertRaisesRegex(exception.BackendError, "m68k"),
        ):
            sandbox.enter()

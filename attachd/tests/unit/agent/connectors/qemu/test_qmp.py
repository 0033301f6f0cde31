# SPDX-License-Identifier: Apache-2.0
"""The monitor of a QEMU process."""

import os
from pathlib import Path
import socket
import threading

import fixtures

from attachd import exception
from attachd.agent.connectors.qemu import qmp
from attachd.tests.wait import TIMEOUT

GREETING = b'{"QMP": {}}\n'
FINE = b'{"return": {}}\n'


class MonitorTest(fixtures.TestWithFixtures):
    """Questions and answers."""

    def serve(self, *answers):
        """Answer each line that comes."""
        folder = Path(self.useFixture(fixtures.TempDir()).path) / ("long" * 40)
        folder.mkdir()
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        # The path is too long for a socket, but not this one.
        descriptor = os.open(folder, os.O_PATH)
        self.addCleanup(os.close, descriptor)
        listener.bind(f"/proc/self/fd/{descriptor}/qmp")
        listener.listen(1)
        self.asked = []

        def answer():
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(GREETING)
                for each in (FINE, *answers):
                    self.asked.append(lines.readline())
                    connection.sendall(each)

        server = threading.Thread(target=answer, daemon=True)
        server.start()
        self.addCleanup(server.join, TIMEOUT)
        return folder / "qmp"

    def test_an_answer_is_returned_and_events_are_passed_over(self):
        path = self.serve(b'{"event": "X"}\n{"return": [1]}\n')
        with qmp.Monitor(path) as monitor:
            self.assertEqual([1], monitor.execute("query", {"a": 1}))
        self.assertIn(b"qmp_capabilities", self.asked[0])
        self.assertEqual(b'{"execute": "query", "arguments": {"a": 1}}\n', self.asked[1])

    def test_a_refusal_is_an_error(self):
        path = self.serve(b'{"error": {"desc": "is read-only"}}\n')
        with (
            qmp.Monitor(path) as monitor,
            self.assertRaisesRegex(exception.HostError, "is read-only"),
        ):
            monitor.execute("block_resize", {})

    def test_an_end_is_an_error(self):
        path = self.serve(b"")
        with qmp.Monitor(path) as monitor, self.assertRaises(exception.HostError):
            monitor.execute("query", {})

    def test_nobody_there_is_an_error(self):
        for path in ("/nowhere/qmp", "/tmp/nowhere-qmp"):
            with self.assertRaises(exception.HostError), qmp.Monitor(Path(path)):
                pass

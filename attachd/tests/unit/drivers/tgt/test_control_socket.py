# SPDX-License-Identifier: Apache-2.0
"""Requests over the control socket, and their answers."""

from pathlib import Path
import socket
import struct
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers.tgt import client, control_socket
from attachd.drivers.tgt.control_socket import Code, Mode, Operation, Request
from attachd.tests.fixtures import lifetime, processes, requirements
from attachd.tests.wait import TIMEOUT

SHOW = Request(Mode.TARGET, Operation.SHOW)


class ControlTest(unittest.TestCase):
    """A tgtd that receives one request and sends one answer."""

    def setUp(self):
        super().setUp()
        self.path = lifetime.temp_dir(self) / "s"
        self.control = control_socket.Control(f"{self.path}", TIMEOUT)
        self.received = b""

    def serve(self, *answers):
        """Send one answer, in pieces."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(f"{self.path}")
        listener.listen()

        def receive():
            channel, _ = listener.accept()
            with channel:
                head = channel.recv(120, socket.MSG_WAITALL)
                # The length of it all stands behind mode, operation and driver.
                rest = struct.unpack_from("=I", head, 72)[0] - len(head)
                self.received = head + channel.recv(rest, socket.MSG_WAITALL)
                for answer in answers:
                    channel.sendall(answer)

        thread = threading.Thread(target=receive)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_request_bytes_equal_those_of_tgtadm(self):
        thread = self.serve(struct.pack("=II", 0, 8))
        self.control.ask(Request(Mode.ACCOUNT, Operation.BIND, 77, "user=user"))
        thread.join()
        self.assertEqual(struct.pack("=ii", 7, 3) + b"iscsi\0", self.received[:14])
        self.assertEqual(77, struct.unpack_from("=i", self.received, 76)[0])
        self.assertEqual(b"user=user\0", self.received[120:])

    def test_requests_of_client_equal_those_of_tgtadm(self):
        tgtadm = requirements.require_tool(self, "tgtadm")
        tgtd = client.Tgtd(f"{self.path}", 0, TIMEOUT)
        self.path = Path(f"{self.path}.0")
        unit = ("logicalunit", "--tid", "7", "--lun", "1")
        connection = mock.Mock(sid=2**40, cid=3)
        for call, arguments in (
            (
                lambda: tgtd.delete_target(7),
                ("delete", "--mode", "target", "--tid", "7"),
            ),
            (
                lambda: tgtd.open_target(7),
                (
                    "update",
                    "--mode",
                    "target",
                    "--tid",
                    "7",
                    "--name",
                    "state",
                    "--value",
                    "ready",
                ),
            ),
            (
                lambda: tgtd.new_unit(7, "/a"),
                ("new", "--mode", *unit, "--backing-store", "/a"),
            ),
            (
                lambda: tgtd.set_unit(7, online="0", path="/a"),
                ("update", "--mode", *unit, "--params", "online=0,path=/a"),
            ),
            (
                lambda: tgtd.close(7, connection),
                ("delete", "--mode", "conn", "--tid", "7", "--sid", f"{2**40}", "--cid", "3"),
            ),
            (
                lambda: tgtd.allow(7, "iqn.x:a"),
                ("bind", "--mode", "target", "--tid", "7", "--initiator-name", "iqn.x:a"),
            ),
        ):
            with self.subTest(arguments):
                line = [tgtadm, "--lld", "iscsi", "--op", *arguments]
                environment = {"TGT_IPC_SOCKET": f"{self.path.with_suffix('')}"}
                theirs = self.record(lambda: processes.run(line, env=environment))  # noqa: B023
                self.assertEqual(theirs, self.record(call))

    def record(self, call):
        """Return what a call sends: its fields, and the text behind them."""
        thread = self.serve(struct.pack("=II", 0, 8))
        call()
        thread.join()
        self.path.unlink()
        fields = list(struct.unpack("@ii64sIiQQIIIIII", self.received[:120]))
        fields[3] = None  # The length is of the text as well, which may end with a zero.
        if fields[6] == 2**64 - 1:
            fields[6] = 0  # tgtadm sends this for "no unit".
        return fields, self.received[120:].rstrip(b"\0")

    def test_listing_is_read_completely(self):
        text = "Target 1: größer\n" * 5000
        raw = text.encode()
        thread = self.serve(struct.pack("=II", 0, 8 + len(raw)), raw[:7], raw[7:])
        self.assertEqual(text, self.control.ask(SHOW))
        thread.join()
        self.assertEqual(struct.pack("=ii", 1, 2), self.received[:8])
        self.assertEqual(-1, struct.unpack_from("=i", self.received, 76)[0])
        self.assertEqual(b"\0", self.received[120:])

    def test_code_of_repeated_request_is_ignored(self):
        self.serve(struct.pack("=II", 14, 8))
        body, passed = "user=a,password=b", (Code.USER_EXISTS,)
        self.control.ask(Request(Mode.ACCOUNT, Operation.NEW, body=body, passed=passed))

    def test_errors_have_no_secret(self):
        for answer in (struct.pack("=II", 2, 8), b"", b"\0\0\0", struct.pack("=II", 0, 9)):
            with self.subTest(answer):
                thread = self.serve(answer)
                with self.assertRaisesRegex(exception.BackendError, "NEW ACCOUNT") as caught:
                    body = "user=user,password=the-secret"
                    self.control.ask(Request(Mode.ACCOUNT, Operation.NEW, body=body))
                self.assertNotIn("the-secret", f"{caught.exception!r}")
                self.assertFalse(caught.exception.final)
                thread.join()
                self.path.unlink()

    def test_groups_of_requests_send_last_bytes_together_and_in_order(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(f"{self.path}")
        listener.listen(3)
        users = ("first", "second", "third")
        requests = [
            Request(Mode.ACCOUNT, Operation.UNBIND, 1, f"user={item}", (Code.NO_USER,))
            for item in users
        ]
        asked = threading.Thread(
            target=self.control.request_together, args=(requests[:1], requests[1:])
        )
        asked.start()
        channels = [listener.accept()[0] for _ in users]
        for channel, user in zip(channels, users, strict=True):
            self.addCleanup(channel.close)
            text = f"user={user}".encode()
            self.assertEqual(text, channel.recv(120 + len(text), socket.MSG_WAITALL)[120:])
        for order in ([0], [2, 1]):
            for number in order:
                self.assertEqual(b"\0", channels[number].recv(1))
            channels[2].setblocking(False)
            self.assertRaises(BlockingIOError, channels[2].recv, 1)
            channels[2].setblocking(True)
            for number in order:
                channels[number].sendall(struct.pack("=II", 15, 8))
        asked.join()

    def test_tgtd_that_accepts_no_connection_times_out(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(f"{self.path}")
        listener.listen(0)
        waiting = socket.socket(socket.AF_UNIX)
        self.addCleanup(waiting.close)
        waiting.connect(f"{self.path}")
        with self.assertRaisesRegex(exception.BackendError, "did not answer in 0.01 s"):
            control_socket.Control(f"{self.path}", 0.01).ask(SHOW)

    def test_hanging_tgtd_times_out(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(f"{self.path}")
        listener.listen()
        with self.assertRaisesRegex(exception.BackendError, "did not answer in 0.01 s"):
            control_socket.Control(f"{self.path}", 0.01).ask(SHOW)

    def test_missing_tgtd_raises_error_with_path(self):
        with self.assertRaisesRegex(exception.BackendError, f"{self.path}"):
            self.control.ask(SHOW)

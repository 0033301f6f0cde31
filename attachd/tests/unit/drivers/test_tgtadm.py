# SPDX-License-Identifier: Apache-2.0
"""What is said to tgtd, and that no answer is taken for what it is not."""

from pathlib import Path
import socket
import struct
import tempfile
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import command, tgtadm

DONE = command.Outcome(0, "", "")


def refused(complaint, code=22):
    return command.Outcome(code, "", f"tgtadm: {complaint}")


class TgtdTest(unittest.TestCase):
    """Through tgtadm."""

    def setUp(self):
        super().setUp()
        self.tgtd = tgtadm.Tgtd("/run/socket", 3, 7.5)
        patched = mock.patch.object(command, "run", return_value=DONE)
        self.run_tool = patched.start()
        self.addCleanup(patched.stop)

    def test_the_right_tgtd_is_asked_with_a_limit(self):
        self.tgtd.accounts()
        line, timeout, environment = self.run_tool.call_args.args
        self.assertEqual(["tgtadm", "--control-port", "3"], line[:3])
        self.assertEqual((7.5, {"TGT_IPC_SOCKET": "/run/socket"}), (timeout, environment))

    def test_a_refusal_is_an_error_with_its_reason(self):
        self.run_tool.return_value = refused("this target is still active")
        with self.assertRaisesRegex(exception.BackendError, "still active") as caught:
            self.tgtd.delete_target(5)
        self.assertFalse(caught.exception.final)

    def test_a_success_with_a_complaint_is_an_error(self):
        self.run_tool.return_value = refused("tgtd closed the socket", code=0)
        for call in (
            self.tgtd.targets,
            lambda: self.tgtd.allow(5, "iqn.x:a"),
            lambda: self.tgtd.bind_account(5, "user"),
            lambda: self.tgtd.new_target("iqn.x:v"),
        ):
            with self.assertRaisesRegex(exception.BackendError, "closed the socket"):
                call()

    def test_what_was_done_before_is_no_error(self):
        for complaint, call in (
            ("this logical unit number already exists", lambda: self.tgtd.new_unit(5, "/file")),
            ("this access control rule already exists", lambda: self.tgtd.allow(5, "iqn.x:a")),
            ("this account already exists", lambda: self.tgtd.bind_account(5, "user")),
            ("this access control rule does not exist", lambda: self.tgtd.forbid(5, "iqn.x:a")),
            ("can't find the account", lambda: self.tgtd.unbind_account(5, "user")),
            ("can't find the account", lambda: self.tgtd.delete_account("user")),
            ("can't find the target", lambda: self.tgtd.delete_target(5)),
            ("can't find the session", lambda: self.tgtd.close(5, mock.Mock(sid=1, cid=0))),
        ):
            with self.subTest(complaint):
                self.run_tool.return_value = refused(complaint)
                call()

    def test_a_number_that_is_taken_is_not_insisted_on(self):
        self.run_tool.side_effect = [refused("this target already exists"), DONE]
        tid = self.tgtd.new_target("iqn.x:v")
        lines = [call.args[0] for call in self.run_tool.mock_calls]
        tried = [line[line.index("--tid") + 1] for line in lines]
        self.assertEqual(tid, int(tried[-1]))
        self.assertEqual(2, len(set(tried)))

    def test_a_name_that_is_taken_is_an_error_in_the_end(self):
        self.run_tool.return_value = refused("this target already exists")
        with self.assertRaisesRegex(exception.BackendError, "iqn.x:v"):
            self.tgtd.new_target("iqn.x:v")

    def test_numbers_are_not_used_again_soon(self):
        tids = {self.tgtd.new_target("iqn.x:v") for _ in range(100)}
        self.assertEqual(100, len(tids))
        self.assertTrue(all(0 < tid < 2**31 for tid in tids))

    def test_a_path_that_is_too_long_for_a_socket_is_named(self):
        with self.assertRaisesRegex(exception.BackendError, "too long"):
            tgtadm.Tgtd("/" + "x" * 100, 0, 1).check()


class NewAccountTest(unittest.TestCase):
    """Through the socket."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "s"
        self.tgtd = tgtadm.Tgtd(f"{self.path}", 0, 5)
        self.heard = b""

    def serve(self, answer):
        """Be a tgtd that hears one request and says one thing."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(f"{self.path}.0")
        listener.listen()

        def hear():
            channel, _ = listener.accept()
            with channel:
                head = channel.recv(120, socket.MSG_WAITALL)
                # The length of it all stands behind mode, operation and driver.
                rest = struct.unpack_from("=I", head, 72)[0] - len(head)
                self.heard = head + channel.recv(rest, socket.MSG_WAITALL)
                channel.sendall(answer)

        thread = threading.Thread(target=hear)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_the_request_is_the_one_that_tgtadm_sends(self):
        thread = self.serve(struct.pack("=II", 0, 8))
        self.tgtd.new_account("user", "secret")
        thread.join()
        self.assertEqual(struct.pack("=ii", 7, 0) + b"iscsi\0", self.heard[:14])
        self.assertEqual(b"user=user,password=secret\0", self.heard[120:])

    def test_an_account_that_exists_is_no_error(self):
        self.serve(struct.pack("=II", 14, 8))
        self.tgtd.new_account("user", "secret")

    def test_errors_do_not_tell_the_secret(self):
        for answer in (struct.pack("=II", 2, 8), b"", b"\0\0\0"):
            with self.subTest(answer):
                thread = self.serve(answer)
                with self.assertRaises(exception.BackendError) as caught:
                    self.tgtd.new_account("user", "the-secret")
                self.assertNotIn("the-secret", f"{caught.exception!r}")
                self.assertFalse(caught.exception.final)
                thread.join()
                Path(f"{self.path}.0").unlink()

    def test_no_tgtd_is_an_error(self):
        with self.assertRaisesRegex(exception.BackendError, f"{self.path}.0"):
            self.tgtd.new_account("user", "secret")

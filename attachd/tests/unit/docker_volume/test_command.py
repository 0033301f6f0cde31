# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import unittest
from unittest import mock

from attachd.docker_volume import command
from attachd.platforms import daemon
from attachd.tests.fixtures.lifetime import temp_dir


class CommandTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.socket = temp_dir(self) / "docker.sock"
        environment = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": "http://127.0.0.1:1/v3"}
        self.enterContext(mock.patch.dict("os.environ", environment))
        self.enterContext(mock.patch.object(daemon, "log_to_stderr"))

    def _run(self, *words):
        """Run the command to its end; return its exit code and its error messages."""
        with contextlib.redirect_stderr(io.StringIO()) as output:
            try:
                code = command.main(words)
            except SystemExit as ended:
                code = ended.code
        return code, output.getvalue()

    def test_signal_ends_server(self):
        seen = []

        def wait(_ended):
            seen.append(self.socket.is_socket())

        ended = mock.Mock(wait=mock.Mock(return_value=True))
        with (
            mock.patch.object(daemon, "end_on_signal", return_value=ended),
            mock.patch.object(daemon, "wait_for", wait),
        ):
            self.assertEqual((0, ""), self._run("--socket", f"{self.socket}"))
        self.assertEqual([True], seen)
        self.assertFalse(self.socket.exists())

    def test_wrong_options_are_refused_with_reason(self):
        for option, value, reason in (
            ("--directory", "relative", "not an absolute path"),
            ("--directory", "/a/../b", "not an absolute path"),
            ("--default-size", "0", "not a number"),
            ("--idle-time", "-1", "not a number"),
            ("--workers", "x", "not a number"),
        ):
            with self.subTest(option):
                code, text = self._run(option, value)
                self.assertEqual(2, code)
                self.assertIn(reason, text)

    def test_socket_that_cannot_be_made_is_reported(self):
        self.socket.write_text("data")
        code, text = self._run("--socket", f"{self.socket}")
        self.assertEqual(1, code)
        self.assertIn("is no socket", text)

    def test_unknown_cloud_is_reported(self):
        code, text = self._run("--socket", f"{self.socket}", "--os-cloud", "missing")
        self.assertEqual(1, code)
        self.assertIn("Cloud missing was not found", text)

# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import unittest
from unittest import mock

from attachd.csi import command
from attachd.platforms import daemon
from attachd.tests.fixtures.lifetime import temp_dir


class CommandTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self)
        environment = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": "http://127.0.0.1:1/v3"}
        self.enterContext(mock.patch.dict("os.environ", environment))
        self.enterContext(mock.patch.object(daemon, "log_to_stderr"))
        self.words = ["--endpoint", f"unix://{self.folder}/csi.sock", "--mode", "controller"]

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

        def wait(_seconds):
            seen.append((self.folder / "csi.sock").is_socket())
            return len(seen) > 1

        ended = mock.Mock(wait=wait)
        with mock.patch.object(daemon, "end_on_signal", return_value=ended):
            self.assertEqual((0, ""), self._run(*self.words))
        self.assertEqual([True, True], seen)
        self.assertFalse((self.folder / "csi.sock").exists())

    def test_modes_have_their_services(self):
        for mode, expected in (
            ("controller", ["Identity", "Controller"]),
            ("node", ["Identity", "Node"]),
            ("all", ["Identity", "Controller", "Node"]),
        ):
            words = [*self.words[:-1], mode, "--zone", "a"]
            with (
                mock.patch.object(command.server, "Server") as made,
                mock.patch.object(daemon, "end_on_signal"),
            ):
                self.assertEqual((0, ""), self._run(*words))
            self.assertEqual(expected, [item.name for item in made.call_args.args[1]])

    def test_wrong_options_are_refused_with_reason(self):
        for option, value, reason in (
            ("--endpoint", "tcp://1.2.3.4", "unix:///PATH"),
            ("--mode", "other", "invalid choice"),
            ("--driver-name", "a/b", "not a domain name"),
            ("--socket-mode", "888", "not three octal digits"),
            ("--workers", "0", "not a number"),
        ):
            with self.subTest(option):
                code, text = self._run(*self.words, option, value)
                self.assertEqual(2, code)
                self.assertIn(reason, text)

    def test_missing_directory_of_socket_is_reported(self):
        code, text = self._run(
            "--endpoint", f"unix://{self.folder}/missing/csi.sock", "--mode", "controller"
        )
        self.assertEqual(1, code)
        self.assertIn("There is no directory", text)

    def test_unknown_cloud_is_reported(self):
        code, text = self._run(*self.words, "--os-cloud", "missing")
        self.assertEqual(1, code)
        self.assertIn("Cloud missing was not found", text)

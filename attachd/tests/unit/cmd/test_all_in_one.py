# SPDX-License-Identifier: Apache-2.0
"""Parts of the command; functional/test_all_in_one tests it as a process."""

import io
from pathlib import Path
import stat
import threading
import unittest
from unittest import mock

from attachd.api import noauth
from attachd.cmd import all_in_one
from attachd.tests.fixtures import conf_fixture, lifetime
from attachd.tests.wait import TIMEOUT


class FolderTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self) / "state"

    def own(self):
        return all_in_one._lock_folder(self.folder)

    def test_lock_folder_creates_private_folder(self):
        with self.own():
            self.assertEqual(0o700, stat.S_IMODE(self.folder.stat().st_mode))

    def test_lock_folder_in_use_names_other_process(self):
        with self.own(), self.assertRaises(all_in_one.StartError) as caught, self.own():
            pass
        self.assertRegex(
            str(caught.exception), r"is in use by another attachd-all-in-one, process \d+$"
        )

    def test_lock_folder_is_released_at_end(self):
        for _ in range(2):
            with self.own():
                pass

    def test_lock_folder_with_special_characters_is_refused(self):
        for name in ("$x", "x?", "x\n[api]"):
            with (
                self.subTest(name=name),
                self.assertRaises(all_in_one.StartError),
                all_in_one._lock_folder(self.folder / name),
            ):
                pass
        self.assertFalse(self.folder.exists())


class CommandLineTest(unittest.TestCase):
    def test_port_option_accepts_only_ports(self):
        parser = all_in_one._parser()
        for port in (0, 80, 65535):
            self.assertEqual(port, parser.parse_args(["--port", f"{port}"]).port)
        for text in ("65536", "99999", "-1", "http", "9" * 5000):
            with (
                self.subTest(text),
                mock.patch("sys.stderr", io.StringIO()) as errors,
                self.assertRaises(SystemExit),
            ):
                parser.parse_args([f"--port={text}"])
            self.assertIn("is no port", errors.getvalue())


class GreetingTest(conf_fixture.DefaultConfCase):
    def greeting(self, host):
        return all_in_one._greeting(Path("/state"), host, 8776)

    def test_greeting_of_loopback_address_has_no_warning(self):
        for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
            with self.subTest(host=host):
                self.assertNotIn("WARNING", self.greeting(host))

    def test_greeting_of_other_address_has_warning(self):
        for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
            with self.subTest(host=host):
                self.assertIn(f"WARNING: {host} is not", self.greeting(host))

    def test_greeting_prints_reachable_url(self):
        for host, url in (
            ("127.0.0.1", "http://127.0.0.1:8776"),
            ("0.0.0.0", "http://127.0.0.1:8776"),
            ("::", "http://[::1]:8776"),
            ("::1", "http://[::1]:8776"),
            ("example.org", "http://example.org:8776"),
        ):
            with self.subTest(host=host):
                self.assertIn(
                    f"export OS_AUTH_TYPE=none OS_ENDPOINT={url}/v3\n", self.greeting(host)
                )

    def test_greeting_with_authentication_describes_credentials(self):
        for strategy, words in (("keystone", "a token"), ("http_basic", "OS_USERNAME=")):
            with self.subTest(strategy):
                conf_fixture.override(self, "auth_strategy", strategy, group="api")
                said = self.greeting("0.0.0.0")
                self.assertIn(words, said)
                self.assertNotIn("Authentication is off", said)
                self.assertIn("http://127.0.0.1:8776", said)

    def test_greeting_prints_default_project(self):
        self.assertEqual(noauth.DEFAULT_PROJECT, all_in_one.PROJECT)
        self.assertIn(f"OS_PROJECT_ID={noauth.DEFAULT_PROJECT} ", self.greeting("::1"))


class FinishTest(unittest.TestCase):
    def test_finish_with_hanging_storage_exits(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        hanging = mock.Mock(stop=lambda: gate.wait(TIMEOUT))
        with (
            mock.patch.object(all_in_one, "SHUTDOWN_TIMEOUT", 0.1),  # it hangs, slow or not
            mock.patch("os._exit", side_effect=SystemExit) as end,
            self.assertRaises(SystemExit),
        ):
            all_in_one._finish(hanging)
        end.assert_called_once_with(1)

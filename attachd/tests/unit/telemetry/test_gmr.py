# SPDX-License-Identifier: Apache-2.0
"""Reports of a process on itself; tests/functional has them of real ones."""

import os
import pathlib
import signal
import threading
import unittest
from unittest import mock

from oslo_utils import timeutils

from attachd.conf import CONF
from attachd.telemetry import gmr
from attachd.tests.fixtures import conf_fixture, lifetime
from attachd.tests.wait import TIMEOUT, wait_until


class ReportTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        before = signal.getsignal(signal.SIGUSR2)
        self.addCleanup(signal.signal, signal.SIGUSR2, before)
        gmr.setup("test")
        self.folder = lifetime.temp_dir(self)
        conf_fixture.override(self, "log_dir", str(self.folder), "oslo_reports")

    def report(self):
        """Have one written by signal, and return it."""
        gmr.setup("test")
        signal.raise_signal(signal.SIGUSR2)
        (file,) = self.folder.glob("test-*_gurumeditation_*")
        return file.read_text(encoding="utf-8")

    def test_it_tells_what_other_rooms_tell(self):
        gmr.register_section("What a test does", lambda: ["one line", "another"])
        self.addCleanup(gmr.register_section, "What a test does", list)
        found = self.report()
        self.assertIn("What a test does", found)
        self.assertIn("one line\nanother", found)
        self.assertIn("Threads by name", found)
        self.assertIn("MainThread", found)

    def test_what_cannot_be_told_costs_nothing_else(self):
        def fail():
            raise KeyError("a secret")

        gmr.register_section("What fails", fail)
        self.addCleanup(gmr.register_section, "What fails", list)
        gmr.register_section("What has nothing", list)
        found = self.report()
        self.assertIn("This could not be told: KeyError", found)
        self.assertNotIn("a secret", found)
        self.assertIn("nothing", found)

    def test_it_shows_options_without_secrets(self):
        conf_fixture.override(self, "connection", "mysql://user:hush@host/db", "database")
        found = self.report()
        self.assertIn("member_timeout", found)
        self.assertNotIn("hush", found)

    def test_processes_that_write_at_once_have_a_file_each(self):
        gmr.setup("test")
        with mock.patch.object(timeutils, "utcnow", return_value=timeutils.utcnow()):
            child = os.fork()
            if not child:
                signal.raise_signal(signal.SIGUSR2)
                os._exit(0)
            self.assertEqual(0, os.waitpid(child, 0)[1])
            signal.raise_signal(signal.SIGUSR2)
        names = {file.name.partition("_")[0] for file in self.folder.iterdir()}
        self.assertEqual({f"test-{child}", f"test-{os.getpid()}"}, names)

    def test_another_thread_leaves_signals_alone(self):
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        thread = threading.Thread(target=gmr.setup, args=("test",))
        thread.start()
        thread.join(TIMEOUT)
        self.assertEqual(signal.SIG_IGN, signal.getsignal(signal.SIGUSR2))

    def test_where_signals_cannot_be_handled_nothing_fails(self):
        with mock.patch.object(signal, "signal", side_effect=ValueError):
            gmr.setup("test")

    def test_a_file_that_is_missing_is_told(self):
        conf_fixture.override(self, "file_event_handler", "/nowhere/at/all", "oslo_reports")
        self.enterContext(mock.patch.object(gmr._State, "watching", 0))
        with self.assertLogs("attachd.telemetry.gmr", "WARNING") as said:
            gmr.setup("test")
        self.assertIn("/nowhere/at/all: No such file", said.output[0])

    def test_a_file_can_ask_for_it(self):
        trigger = pathlib.Path(self.folder) / "trigger"
        trigger.touch()
        self.enterContext(mock.patch.object(gmr._State, "watching", 0))
        conf_fixture.override(self, "file_event_handler", str(trigger), "oslo_reports")
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        gmr.setup("test")

        def found():
            trigger.touch()
            return list(self.folder.glob("test-*_gurumeditation_*"))

        wait_until(found)
        self.assertEqual(signal.SIG_IGN, signal.getsignal(signal.SIGUSR2))

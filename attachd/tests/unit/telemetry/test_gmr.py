# SPDX-License-Identifier: Apache-2.0
"""Guru Meditation Reports; tests/functional has those of real processes."""

import os
import pathlib
import signal
import threading
from unittest import mock

from oslo_utils import timeutils

import attachd.db.engine.session  # noqa: F401  registers [database]connection
from attachd.telemetry import gmr
from attachd.tests.fixtures import conf_fixture, lifetime
from attachd.tests.wait import TIMEOUT, wait_until


class ReportTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        before = signal.getsignal(signal.SIGUSR2)
        self.addCleanup(signal.signal, signal.SIGUSR2, before)
        gmr.setup("test")
        self.folder = lifetime.temp_dir(self)
        conf_fixture.override(self, "log_dir", str(self.folder), "oslo_reports")

    def report(self):
        """Trigger a report by signal, and return it."""
        gmr.setup("test")
        signal.raise_signal(signal.SIGUSR2)
        (file,) = self.folder.glob("test-*_gurumeditation_*")
        return file.read_text(encoding="utf-8")

    def _end_watch(self, trigger, threads_before):
        """End the thread of oslo.reports, which has no stop: it fails without its file."""
        with mock.patch.object(threading, "excepthook") as failed:
            trigger.unlink()
            for thread in set(threading.enumerate()).difference(threads_before):
                thread.join(TIMEOUT)
                self.assertFalse(thread.is_alive())
        failed.assert_called_once()

    def test_report_contains_registered_sections_and_threads(self):
        gmr.register_section("What a test does", lambda: ["one line", "another"])
        self.addCleanup(gmr.register_section, "What a test does", list)
        found = self.report()
        self.assertIn("What a test does", found)
        self.assertIn("one line\nanother", found)
        self.assertIn("Threads by name", found)
        self.assertIn("MainThread", found)

    def test_report_with_failing_section_names_error_and_has_other_sections(self):
        def fail():
            raise KeyError("a secret")

        gmr.register_section("What fails", fail)
        self.addCleanup(gmr.register_section, "What fails", list)
        gmr.register_section("What has nothing", list)
        found = self.report()
        self.assertIn("This section failed: KeyError", found)
        self.assertNotIn("a secret", found)
        self.assertIn("nothing", found)

    def test_report_shows_options_without_secrets(self):
        conf_fixture.override(self, "connection", "mysql://user:hush@host/db", "database")
        found = self.report()
        self.assertIn("member_timeout", found)
        self.assertNotIn("hush", found)

    def test_reports_of_two_processes_at_once_go_to_two_files(self):
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

    def test_setup_in_other_thread_installs_no_signal_handler(self):
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        thread = threading.Thread(target=gmr.setup, args=("test",))
        thread.start()
        thread.join(TIMEOUT)
        self.assertEqual(signal.SIG_IGN, signal.getsignal(signal.SIGUSR2))

    def test_setup_without_signal_support_does_not_fail(self):
        with mock.patch.object(signal, "signal", side_effect=ValueError):
            gmr.setup("test")

    def test_setup_with_missing_trigger_file_logs_warning(self):
        conf_fixture.override(self, "file_event_handler", "/nowhere/at/all", "oslo_reports")
        self.enterContext(mock.patch.object(gmr._State, "watching", 0))
        with self.assertLogs("attachd.telemetry.gmr", "WARNING") as said:
            gmr.setup("test")
        self.assertIn("/nowhere/at/all: No such file", said.output[0])

    def test_changed_trigger_file_writes_report(self):
        trigger = pathlib.Path(self.folder) / "trigger"
        trigger.touch()
        self.enterContext(mock.patch.object(gmr._State, "watching", 0))
        conf_fixture.override(self, "file_event_handler", str(trigger), "oslo_reports")
        conf_fixture.override(self, "file_event_handler_interval", 0, "oslo_reports")
        self.addCleanup(self._end_watch, trigger, threading.enumerate())
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        gmr.setup("test")

        def found():
            trigger.touch()
            return list(self.folder.glob("test-*_gurumeditation_*"))

        wait_until(found)
        self.assertEqual(signal.SIG_IGN, signal.getsignal(signal.SIGUSR2))

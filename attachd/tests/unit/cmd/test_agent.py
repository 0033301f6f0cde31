# SPDX-License-Identifier: Apache-2.0
"""The command by itself; functional/test_agents tests it as a process."""

import fcntl
import io
import os
import signal
import threading
import unittest
from unittest import mock

from attachd.agent import key
from attachd.agent.connectors import brick
from attachd.agent.journal import Entry, Journal, Owner
from attachd.cmd import agent
from attachd.tests.fixtures import lifetime, requirements
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.unit.agent import test_journal
from attachd.tests.wait import wait_until


class MainTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        self.folder = lifetime.temp_dir(self) / "host"
        override(self, "state_path", str(self.folder), group="agent")
        override(self, "host", "compute-1", group="agent")
        override(self, "connector_type", "user-space", group="agent")
        self.prepare = self.patch("attachd.service.prepare")
        self.made = self.patch("attachd.cmd.agent.Agent")
        self.forker = self.patch("attachd.cmd.agent.Forker").return_value
        closed = threading.Event()
        self.forker.wait.side_effect = closed.wait
        self.forker.close.side_effect = closed.set
        self.addCleanup(closed.set)
        self.agent = self.made.return_value
        self.agent.stop.return_value = True
        self.patch("sys.argv", ["attachd-agent", "--config-file", "some.conf"])
        for number in (signal.SIGTERM, signal.SIGINT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def patch(self, name, *args, **kwargs):
        return self.enterContext(mock.patch(name, *args, **kwargs))

    def run_until(self, number):
        self.agent.start.side_effect = lambda: signal.raise_signal(number)
        return agent.main()

    def refused(self):
        with mock.patch("sys.stderr", io.StringIO()) as errors:
            self.assertEqual(1, agent.main())
        self.made.assert_not_called()
        self.assertEqual(1, errors.getvalue().count("\n"))
        return errors.getvalue()

    def test_agent_runs_until_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            override(self, "state_path", f"{self.folder}-{number}", group="agent")
            self.assertEqual(0, self.run_until(number))
        self.prepare.assert_called_with(["--config-file", "some.conf"])
        self.assertEqual(2, self.agent.stop.call_count)

    def test_agent_has_configured_host_and_key(self):
        self.run_until(signal.SIGTERM)
        (host, proof) = self.made.call_args.args
        self.assertEqual(("compute-1", "user-space"), (host.identity.name, host.connector.TYPE))
        self.assertEqual(self.folder, host.journal.state_path)
        self.assertEqual(key.load_or_create(self.folder / "agent.key"), proof)

    def test_agent_reads_key_from_key_file_option(self):
        elsewhere = self.folder.with_name("elsewhere")
        override(self, "key_file", str(elsewhere), group="agent")
        self.run_until(signal.SIGTERM)
        self.assertEqual(elsewhere.read_text().strip(), self.made.call_args.args[1])
        self.assertFalse((self.folder / "agent.key").exists())

    def test_agent_that_does_not_stop_in_time_exits(self):
        self.agent.stop.return_value = False
        leave = self.patch("os._exit")
        with self.assertLogs("attachd.cmd.agent", "WARNING"):
            self.run_until(signal.SIGTERM)
        leave.assert_called_once_with(0)

    def test_agent_without_root_is_refused_with_advice(self):
        self.patch("os.geteuid", return_value=1000)
        self.assertIn("sudo", self.refused())
        self.assertFalse(self.folder.exists())

    def test_agent_without_os_brick_is_refused_with_advice(self):
        override(self, "connector_type", "kernel", group="agent")
        missing = mock.patch(
            "attachd.agent.connectors.brick.BrickConnector.has_library", return_value=False
        )
        with missing:
            said = f"attachd-agent: os-brick is missing here: {brick.INSTALL}\n"
            self.assertEqual(said, self.refused())

    def test_second_agent_of_host_is_refused(self):
        self.folder.mkdir()
        lock = os.open(self.folder / "agent.lock", os.O_CREAT | os.O_RDWR)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.assertIn(f"Another agent uses {self.folder}", self.refused())

    def test_key_file_readable_by_others_is_refused(self):
        self.patch("attachd.agent.key.os.fstat", return_value=mock.Mock(st_uid=0, st_mode=0o640))
        self.assertIn("agent.key", self.refused())

    def test_changed_host_name_with_attached_volumes_is_refused(self):
        self.patch("attachd.cmd.agent._lock_folder")  # which lasts as long as the process
        self.run_until(signal.SIGTERM)
        journal = Journal(self.folder)
        entry = journal.write(Entry("v", owner=Owner.AGENT))
        self.run_until(signal.SIGTERM)
        self.made.reset_mock()
        override(self, "host", "compute-2", group="agent")
        self.assertIn("[agent] host = compute-1", self.refused())
        journal.write(entry, owner=Owner.LOCAL)
        self.assertEqual(0, self.run_until(signal.SIGTERM))
        self.assertEqual("compute-2", self.made.call_args.args[0].identity.name)

    def test_host_name_is_synced_once_before_start(self):
        self.patch("attachd.cmd.agent._lock_folder")
        stored, before = self.folder / "agent.host", []
        self.patch("os.fsync", side_effect=lambda _file: before.append(stored.exists()))
        self.run_until(signal.SIGTERM)
        self.assertEqual("compute-1\n", stored.read_text())
        # The key, and last the name, which had not its place yet.
        self.assertEqual({False}, set(before))
        written = stored.stat().st_ino
        self.run_until(signal.SIGTERM)
        self.assertEqual(written, stored.stat().st_ino)

    def test_empty_host_name_file_is_replaced(self):
        self.patch("attachd.cmd.agent._lock_folder")
        Journal(self.folder).write(Entry("v", owner=Owner.AGENT))
        (self.folder / "agent.host").write_text("")
        self.assertEqual(0, self.run_until(signal.SIGTERM))
        self.assertEqual("compute-1\n", (self.folder / "agent.host").read_text())

    def test_agent_starts_although_host_name_cannot_be_stored(self):
        self.patch("attachd.cmd.agent._lock_folder")
        self.run_until(signal.SIGTERM)
        Journal(self.folder).write(Entry("v", owner=Owner.AGENT))
        with test_journal.full_disk():
            self.assertEqual(0, self.run_until(signal.SIGTERM))
        self.assertEqual(0, self.run_until(signal.SIGTERM))
        (self.folder / "agent.host").write_text("")
        self.assertEqual(0, self.run_until(signal.SIGTERM))
        self.assertEqual("compute-1\n", (self.folder / "agent.host").read_text())

    def test_uncreatable_folder_is_named(self):
        override(self, "state_path", "/proc/nothing", group="agent")
        self.assertIn("/proc/nothing", self.refused())

    def test_agent_notifies_systemd_after_start(self):
        ready = self.patch("oslo_service.systemd.notify_once")
        ready.side_effect = self.agent.start.assert_called_once_with
        self.run_until(signal.SIGTERM)
        ready.assert_called_once_with()

    def test_agent_leaves_no_thread(self):
        before = threading.active_count()
        self.run_until(signal.SIGTERM)
        wait_until(lambda: before == threading.active_count())

    def test_agent_ends_with_the_process_that_works_on_volumes(self):
        self.forker.wait.side_effect = None
        with self.assertLogs("attachd.cmd.agent", "ERROR"):
            self.assertEqual(0, agent.main())
        self.agent.stop.assert_called_once_with()

# SPDX-License-Identifier: Apache-2.0
"""The journal of a host: entries are complete, and only their owner can read them."""

from concurrent import futures
import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.agent.connectors.base import Device, Options
from attachd.agent.journal import Entry, Journal, Owner, Step
from attachd.tests.fixtures import lifetime
from attachd.tests.wait import TIMEOUT

_WRITER = """
import sys
from pathlib import Path
from attachd.agent.journal import Entry, Journal
journal, entry = Journal(Path(sys.argv[1])), Entry("v", id="e")
for number in range(10**9):
    journal.write(entry, error="x" * (number % 5000))
    print(number, flush=True)
"""

_HOLDER = """
import sys, time
from pathlib import Path
from attachd.agent.journal import Journal
with Journal(Path(sys.argv[1])).volume_lock("v"):
    print("held", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def full_disk():
    """Prevent this process from writing files, like a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class JournalTest(unittest.TestCase):
    """Entries are read as they were written."""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self) / "host"
        self.journal = Journal(self.folder)

    def test_written_entry_is_read(self):
        entry = self.journal.write(
            Entry("v", owner=Owner.AGENT, mode="ro"),
            step=Step.MOUNTING,
            options=Options(multipath=True, nic="eth1"),
            connection_info={"driver_volume_type": "iscsi", "auth_password": "secret"},
            device=Device("/dev/sdb", {"type": "block"}),
            mountpoint="/mnt/disk",
            mkfs="ext4",
            formatting="ext4",
            restoring=True,
        )
        self.assertEqual([entry], self.journal.list_entries())
        self.assertEqual(entry, self.journal.get(entry.id))
        self.assertEqual([entry], self.journal.list_for_volume("v"))
        self.assertEqual([], self.journal.list_for_volume("w"))

    def test_entry_without_newer_fields_is_read(self):
        entry = self.journal.write(Entry("v"))
        path = self.folder / "attachments" / f"{entry.id}.json"
        values = json.loads(path.read_text())
        for text in ("formatting", "restoring"):
            del values[text]
        path.write_text(json.dumps(values))
        self.assertEqual([entry], self.journal.list_entries())

    def test_empty_journal_has_no_entries(self):
        self.assertEqual([], self.journal.list_entries())
        self.assertIsNone(self.journal.get("e"))
        self.journal.remove(Entry("v"))

    def test_entries_are_ordered_by_last_change(self):
        first, second = (self.journal.write(Entry(volume)) for volume in "vw")
        first = self.journal.write(first, step=Step.CONNECTING)
        self.assertEqual([second, first], self.journal.list_entries())

    def test_removed_entry_is_gone(self):
        entry = self.journal.write(Entry("v"))
        self.journal.remove(entry)
        self.assertEqual([], self.journal.list_entries())

    def test_journal_files_are_private(self):
        self.addCleanup(os.umask, os.umask(0))
        self.journal.write(Entry("v"))
        with self.journal.volume_lock("v"):
            pass
        for path in (self.folder, *self.folder.rglob("*")):
            if path.is_dir() or path.suffix == ".json":
                self.assertEqual(0, path.stat().st_mode & 0o077, path)

    def test_change_wakes_those_that_wait(self):
        changes, count = self.journal.changes, self.journal.changes.count
        self.assertFalse(changes.wait(count, 0))
        with futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(changes.wait, count, TIMEOUT)
            entry = self.journal.write(Entry("v"))
            self.assertTrue(waiting.result())
        count = changes.count
        self.journal.remove(entry)
        self.assertTrue(changes.wait(count, 0))

    def test_unreadable_entry_raises(self):
        entry = self.journal.write(Entry("v"))
        for broken in ("", "{}", '{"step": "dancing"}'):
            (self.folder / "attachments" / f"{entry.id}.json").write_text(broken)
            self.assertRaises(exception.HostError, self.journal.list_entries)

    def test_write_on_full_disk_raises_host_error(self):
        entry = self.journal.write(Entry("v"))
        with full_disk(), self.assertRaisesRegex(exception.HostError, "cannot be written"):
            self.journal.write(entry, step=Step.CONNECTING)
        self.assertEqual([entry], self.journal.list_entries())
        self.journal.write(entry, step=Step.CONNECTING)

    def test_write_in_unwritable_directory_raises_host_error(self):
        self.folder.mkdir()
        for name in ("attachments", "locks"):
            (self.folder / name).touch()
        with (
            self.assertRaisesRegex(exception.HostError, "locks/v cannot be written"),
            self.journal.volume_lock("v"),
        ):
            self.fail("the lock was acquired")
        for act in (self.journal.write, self.journal.remove):
            self.assertRaisesRegex(exception.HostError, "cannot be written", act, Entry("v"))

    def test_killed_writer_leaves_complete_entry(self):
        process = self.start(_WRITER)
        for _ in range(200):
            process.stdout.readline()
        process.kill()
        process.wait()
        (entry,) = self.journal.list_entries()
        self.assertEqual({"x"}, set(entry.error))

    def test_volume_lock_is_released_by_end_of_process(self):
        process = self.start(_HOLDER)
        process.stdout.readline()
        with (
            self.assertRaisesRegex(exception.LocalConflict, "volume v"),
            self.journal.volume_lock("v"),
        ):
            self.fail("two have it")
        with self.journal.volume_lock("w"):
            pass
        process.kill()
        process.wait()
        with self.journal.volume_lock("v"):
            pass

    def test_volume_lock_serializes_waiters_and_leaves_no_file(self):
        inside, most, done = [], [], []

        def work(number):
            for _ in range(20):
                with self.journal.volume_lock("v", timeout=TIMEOUT):
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)
            done.append(number)

        threads = [threading.Thread(target=work, args=[index]) for index in range(4)]
        with mock.patch("attachd.agent.journal._POLL_INTERVAL", 0.0001):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT)
        self.assertEqual((4, {1}), (len(done), set(most)))
        self.assertEqual([], [*(self.folder / "locks").iterdir()])

    def test_volume_lock_timeout_raises_conflict(self):
        refused = self.assertRaisesRegex(exception.LocalConflict, "volume v")
        # The lock is held all the time, also if that is long.
        with self.journal.volume_lock("v"), refused, self.journal.volume_lock("v", timeout=0.2):
            self.fail("two have it")

    def start(self, program):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, str(self.folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

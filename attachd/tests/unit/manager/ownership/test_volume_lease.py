# SPDX-License-Identifier: Apache-2.0
"""Leases of volumes among several processes, and the locks of one machine."""

import contextlib
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db.cluster import members, volume_leases
from attachd.drivers import base
from attachd.manager.ownership import membership, volume_lease
from attachd.manager.ownership.membership import Membership
from attachd.rpc import deadlines
from attachd.tests.fixtures import backends, conf_fixture, db_rows, lifetime
from attachd.tests.wait import TIMEOUT, wait_until

_OTHER = f"""
import sys
from attachd.manager.ownership import volume_lease
sys.stdout.write("comes\\n")
sys.stdout.flush()
with volume_lease.file_lock(sys.argv[1], {TIMEOUT}, {TIMEOUT}):
    sys.stdout.write("has it\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


class _LeaseCase(backends.BackendCase):
    """One volume, our process, and another one on another machine."""

    def setUp(self):
        super().setUp()
        # No thread sends heartbeats here: the first one has to last.
        conf_fixture.override(self, "member_timeout", 3600.0, group="manager")
        self.ours = Membership()
        self.addCleanup(self.ours.stop)
        self.ours.heartbeat()
        members.join("other", "elsewhere:7")
        self.volume_id = db_rows.add_volume()["id"]
        self.path = f"{CONF.state_path}/one"

    def volume_lease(self):
        return volume_lease.acquire(self.ours, self.volume_id, self.path)

    def stored(self):
        row = db_rows.get_volume(self.volume_id)
        return row["lease_holder"], row["lease_generation"]

    def give_to_other(self):
        db_rows.change_volume(self.volume_id, lease_holder="other")


class VolumeLeaseTest(_LeaseCase):
    """Processes that are alive or dead."""

    def test_lease_is_released_at_end(self):
        with self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            self.assertEqual((self.ours.id, 1), self.stored())
        self.assertEqual((None, 1), self.stored())

    def test_lease_is_released_after_exception(self):
        with self.assertRaises(ZeroDivisionError), self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            raise ZeroDivisionError
        self.assertEqual((None, 1), self.stored())

    def test_lease_released_by_work_costs_no_statement(self):
        with mock.patch.object(volume_leases, "release") as again:
            with self.volume_lease() as volume_lease:
                volume_lease.run_with_lease(volume_leases.acquire_committed)
                volume_leases.confirm(volume_lease.token, {}, ended=True)
            with self.volume_lease():
                pass
        self.assertEqual(0, again.call_count)

    def test_lease_in_doubt_is_released(self):
        def lost(volume_lease):
            volume_leases.acquire_committed(volume_lease)
            volume_lease.generation = None
            raise exception.Unavailable(reason="The connection was lost at the commit.")

        with self.assertRaises(exception.Unavailable), self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(lost)
        self.assertEqual((None, 1), self.stored())

    def test_lease_release_failure_does_not_hide_result(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(volume_leases, "release", side_effect=gone):
            with self.volume_lease() as volume_lease:
                volume_lease.run_with_lease(volume_leases.acquire_committed)
            with self.assertRaises(ZeroDivisionError), self.volume_lease() as volume_lease:
                volume_lease.run_with_lease(volume_leases.acquire_committed)
                raise ZeroDivisionError
        self.assertEqual((self.ours.id, 2), self.stored())

    def test_lease_of_living_process_is_waited_for(self):
        self.give_to_other()
        held = threading.Event()
        asked = threading.Semaphore(0)

        def take(volume_lease):
            asked.release()
            volume_leases.acquire_committed(volume_lease)

        def work():
            with self.volume_lease() as volume_lease:
                volume_lease.run_with_lease(take)
                held.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        for _ in range(3):
            self.assertTrue(asked.acquire(timeout=TIMEOUT))
        self.assertFalse(held.is_set())
        db_rows.change_volume(self.volume_id, lease_holder=None)
        self.assertTrue(held.wait(TIMEOUT))
        thread.join(TIMEOUT)

    def test_lease_timeout_names_holder(self):
        self.give_to_other()
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        with (
            self.assertRaisesRegex(exception.Unavailable, "busy.*elsewhere:7"),
            self.volume_lease() as volume_lease,
        ):
            volume_lease.run_with_lease(volume_leases.acquire_committed)
        self.assertEqual(("other", 0), self.stored())

    def test_lease_of_dead_process_is_taken_over_at_once(self):
        self.give_to_other()
        members.expire("other")
        with self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            self.assertEqual((self.ours.id, 1), self.stored())

    def test_run_with_lease_again_keeps_generation(self):
        with self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            self.assertEqual((self.ours.id, 1), self.stored())
            self.give_to_other()
            self.assertRaises(
                exception.TakenOver, volume_lease.run_with_lease, volume_leases.acquire_committed
            )
        self.assertEqual(("other", 1), self.stored())

    def test_lock_held_by_other_thread_raises_when_caller_waits_no_longer(self):
        refused = []

        def late():
            try:
                with deadlines.answering_within(0.1), self.volume_lease():
                    refused.append("not refused")
            except exception.Unavailable as error:
                refused.append(str(error))

        with self.volume_lease():
            thread = threading.Thread(target=late, daemon=True)
            thread.start()
            thread.join(TIMEOUT)
        self.assertIn(f"Volume {self.volume_id} is busy", refused[0])
        self.assertIn("not ended in 1 s", refused[0])

    def test_lease_is_released_before_lock(self):
        idle = []
        real = volume_leases.release

        def give_back(token):
            idle.append(volume_lease.is_lock_free(self.path))
            real(token)

        with mock.patch.object(volume_leases, "release", give_back), self.volume_lease() as held:
            held.run_with_lease(volume_leases.acquire_committed)
        self.assertEqual([False], idle)


class TakenOverTest(_LeaseCase):
    """A process that may have been removed by other members."""

    def setUp(self):
        super().setUp()
        self.later = membership.boot_clock() + CONF.manager.member_timeout

    def asleep(self):
        return mock.patch.object(membership, "boot_clock", lambda: self.later)

    def test_taken_over_process_changes_nothing_at_backend(self):
        with self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            base.check_still_owner()
            self.assertFalse(volume_lease.may_be_taken_over())
            with self.asleep():
                self.assertRaises(exception.BackendError, base.check_still_owner)
                self.assertTrue(volume_lease.may_be_taken_over())
        base.check_still_owner()

    def test_taken_over_process_acquires_no_lease(self):
        with (
            self.asleep(),
            self.assertRaises(exception.Unavailable),
            self.volume_lease() as volume_lease,
        ):
            volume_lease.run_with_lease(volume_leases.acquire_committed)
        self.assertEqual((None, 0), self.stored())

    def test_taken_over_process_may_store_result_of_its_lease(self):
        # The row decides: no other process has taken it over so far.
        with self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            with self.asleep():
                volume_lease.run_with_lease(volume_leases.acquire_committed)

    def test_lease_of_former_id_may_be_taken_over(self):
        with self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            members.expire(self.ours.id)
            self.ours.heartbeat()
            self.assertTrue(volume_lease.may_be_taken_over())
            self.assertRaises(exception.BackendError, base.check_still_owner)
        with self.volume_lease() as volume_lease:
            volume_lease.run_with_lease(volume_leases.acquire_committed)
            self.assertFalse(volume_lease.may_be_taken_over())


class VolumeLockTest(unittest.TestCase):
    """One lock."""

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self) / "locks"
        self.path = f"{self.folder}/one"
        self.order = []

    def begin(self, name):
        """Start a thread that acquires the lock, and return once it is queued."""

        def want():
            with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
                self.order.append(name)

        before = len(volume_lease._waiters.get(self.path, ()))
        thread = threading.Thread(target=want, daemon=True)
        thread.start()
        wait_until(
            lambda: name in self.order or len(volume_lease._waiters.get(self.path, ())) > before,
            interval=0.001,
        )
        return thread

    def start_process(self):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _OTHER, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual("comes\n", process.stdout.readline())
        return process

    def is_waiting(self, process):
        """Return whether a process waits for a file lock."""
        waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return any("->" in line and f"{process.pid}" in line for line in waiting)

    def test_threads_acquire_in_order_of_arrival(self):
        with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
            threads = [self.begin(number) for number in range(20)]
            self.assertEqual([], self.order)
        for thread in threads:
            thread.join(TIMEOUT)
        self.assertEqual(list(range(20)), self.order)

    def test_lock_is_released_after_exception(self):
        with (
            self.assertRaises(ZeroDivisionError),
            volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT),
        ):
            raise ZeroDivisionError
        self.begin("next").join(TIMEOUT)
        self.assertEqual(["next"], self.order)
        self.assertEqual({}, volume_lease._waiters)

    def test_is_lock_free_without_holder(self):
        self.assertTrue(volume_lease.is_lock_free(self.path))
        with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
            self.assertFalse(volume_lease.is_lock_free(self.path))
            self.assertTrue(volume_lease.is_lock_free(f"{self.folder}/two"))
        self.assertTrue(volume_lease.is_lock_free(self.path))

    def test_is_lock_free_is_false_until_other_process_is_killed(self):
        other = self.start_process()
        self.assertEqual("has it\n", other.stdout.readline())
        self.assertFalse(volume_lease.is_lock_free(self.path))
        waiting = self.begin("we")
        other.kill()
        waiting.join(TIMEOUT)
        self.assertEqual(["we"], self.order)
        self.assertTrue(volume_lease.is_lock_free(self.path))

    def test_other_process_acquires_before_later_threads(self):
        with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
            other = self.start_process()
            wait_until(lambda: self.is_waiting(other))
            threads = [self.begin(number) for number in range(5)]
        self.assertEqual("has it\n", other.stdout.readline())
        self.assertEqual([], self.order)
        other.kill()
        for thread in threads:
            thread.join(TIMEOUT)
        self.assertEqual(list(range(5)), self.order)

    def test_acquire_after_timeout_leaves_queue(self):
        with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
            with (
                self.assertRaises(volume_lease.LockTimeout),
                volume_lease.file_lock(self.path, 0.05, TIMEOUT),
            ):
                self.fail("two at once")
            next_one = self.begin("next")
            self.assertEqual([], self.order)
        next_one.join(TIMEOUT)
        self.assertEqual(["next"], self.order)
        self.assertEqual({}, volume_lease._waiters)

    def start_sleeping_process(self):
        """Return a process that holds the lock and is suspended."""
        other = self.start_process()
        self.assertEqual("has it\n", other.stdout.readline())
        other.send_signal(signal.SIGSTOP)
        return other

    def waiting_threads(self):
        return [thread for thread in threading.enumerate() if thread.name == "volume-lock"]

    def test_acquire_with_suspended_holder_continues_after_timeout(self):
        self.start_sleeping_process()
        started_at = time.monotonic()
        # The suspended holder never releases it, so each limit is reached.
        with volume_lease.file_lock(self.path, TIMEOUT, 0.2):
            self.assertGreaterEqual(time.monotonic() - started_at, 0.2)

    def test_acquire_at_gate_with_suspended_holder_continues_after_timeout(self):
        self.start_sleeping_process()
        third = self.start_process()
        wait_until(lambda: self.is_waiting(third))
        # The suspended holder never releases it, so each limit is reached.
        with volume_lease.file_lock(self.path, TIMEOUT, 0.2):
            self.assertFalse(volume_lease.is_lock_free(f"{self.path}.gate"))

    def test_lock_of_timed_out_waiter_is_free_after_holder_ends(self):
        sleeper = self.start_sleeping_process()
        before = self.open_files()
        for _ in range(3):
            # The suspended holder never releases it, so each limit is reached.
            with volume_lease.file_lock(self.path, TIMEOUT, 0.01):
                pass
        self.assertFalse(volume_lease.is_lock_free(self.path))
        self.assertEqual(before + 3, self.open_files())
        sleeper.kill()
        wait_until(lambda: not self.waiting_threads())
        self.assertTrue(volume_lease.is_lock_free(self.path))
        self.assertEqual(before, self.open_files())
        with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
            self.assertFalse(volume_lease.is_lock_free(self.path))

    def open_files(self):
        """Return how many lock files this process has open."""
        count = 0
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += path.readlink().is_relative_to(self.folder)
        return count

    def test_acquire_leaves_no_file_open(self):
        with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
            self.assertEqual(1, self.open_files(), "the gate is left behind us")
            waiting = [self.begin(number) for number in range(3)]
        for item in waiting:
            item.join(TIMEOUT)
        self.assertEqual(0, self.open_files())

    def test_delete_lock_files_leaves_no_file(self):
        with volume_lease.file_lock(self.path, TIMEOUT, TIMEOUT):
            self.assertTrue(list(self.folder.iterdir()))
            volume_lease.delete_lock_files(self.path)
        self.assertEqual([], list(self.folder.iterdir()))
        volume_lease.delete_lock_files(self.path)

    def test_check_lock_files_leaves_no_file(self):
        volume_lease.check_lock_files(f"{self.folder}/check")
        self.assertEqual([], list(self.folder.iterdir()))

    def test_lock_file_that_cannot_be_opened_is_unavailable(self):
        self.folder.write_text("no directory")
        for use in (
            volume_lease.check_lock_files,
            volume_lease.is_lock_free,
            lambda path: volume_lease.file_lock(path, TIMEOUT, TIMEOUT).__enter__(),
        ):
            with self.assertRaisesRegex(exception.Unavailable, "lock files: Not a directory"):
                use(self.path)

    def test_check_lock_files_on_full_file_system_is_unavailable(self):
        self.folder.mkdir()
        full = f"{self.folder}/full"
        with mock.patch.object(
            volume_lease, "_open", lambda _path: os.open("/dev/full", os.O_RDWR)
        ):
            Path(full).touch()
            with self.assertRaisesRegex(exception.Unavailable, "No space left on device"):
                volume_lease.check_lock_files(full)

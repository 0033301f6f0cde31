# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of a process, and the removal of dead members."""

import contextlib
import datetime
import fcntl
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading
from unittest import mock

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.cluster import members
from attachd.db.engine import session
from attachd.drivers import base
from attachd.manager.ownership import membership
from attachd.manager.ownership.membership import Membership
from attachd.tests.fixtures import backends, conf_fixture
from attachd.tests.wait import TIMEOUT, wait_until

LONG = 3600.0

_OTHER = """
import subprocess, sys, threading
from attachd.conf import CONF
from attachd.drivers import base
from attachd.manager.ownership.membership import Membership
CONF.set_override("state_path", sys.argv[1])
CONF.set_override("connection", sys.argv[2], group="database")
CONF.set_override("member_timeout", 3600.0, group="manager")
ours = Membership()
ours.start()
ours.wait_until_joined(threading.Event())
tool = subprocess.Popen(["sleep", "600"], pass_fds=base.liveness_fds())
print(ours.id, tool.pid, flush=True)
sys.stdin.read()
"""


class MembershipCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "member_timeout", LONG, group="manager")
        # Fixed, and a whole number: sums of other numbers have rounding errors.
        self.now = 1_000_000.0
        self.enterContext(mock.patch.object(membership, "boot_clock", lambda: self.now))
        self.ours = Membership()
        self.addCleanup(self.ours.stop)
        self.lost = 0
        self.ours.on_member_lost(self.count_lost)

    def heartbeat_and_expire(self, later=0.0):
        """Send a heartbeat some time later, and expire dead members."""
        self.now += later
        self.ours.heartbeat()
        self.ours.expire_dead_members()

    def count_lost(self):
        self.lost += 1

    def living(self):
        return [row["id"] for row in members.list_living()]

    def files(self):
        return sorted(path.name for path in (Path(CONF.state_path) / "processes").iterdir())

    def make_silent(self, process_id, seconds):
        """Set the time of a process's last heartbeat."""
        seen_at = models.now() - datetime.timedelta(seconds=seconds)
        with session.writer() as connection:
            table = models.members
            changed = sa.update(table).where(table.c.id == process_id).values(seen_at=seen_at)
            self.assertEqual(1, connection.execute(changed).rowcount)

    def start(self):
        self.ours.start()
        self.ours.wait_until_joined(threading.Event())
        wait_until(lambda: self.ours._valid_until > 0)

    def assert_unsure(self, holder):
        with self.assertRaises(exception.BackendError) as refused:
            self.ours.check(holder)
        self.assertIs(False, refused.exception.final)


class HeartbeatTest(MembershipCase):
    """One process without others."""

    def test_heartbeat_joins_and_renews_row(self):
        self.ours.heartbeat()
        (row,) = members.list_living()
        name = f"{os.uname().nodename}:{os.getpid()}"
        self.assertEqual((self.ours.id, name), (row["id"], row["name"]))
        self.make_silent(self.ours.id, 100)
        self.ours.heartbeat()
        (after,) = members.list_living()
        self.assertGreaterEqual(after["seen_at"], row["seen_at"])
        self.assertEqual(row["started_at"], after["started_at"])

    def test_start_renews_row_periodically(self):
        conf_fixture.override(self, "member_timeout", 1.0, group="manager")
        self.start()
        for _ in range(2):
            (row,) = members.list_living()
            wait_until(lambda row=row: members.list_living()[0]["seen_at"] > row["seen_at"])

    def test_check_without_start_passes(self):
        self.ours.check(self.ours.id)
        self.ours.wait_until_joined(threading.Event())

    def test_check_before_join_raises(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        stop = threading.Event()
        waiting = threading.Thread(target=self.ours.wait_until_joined, args=(stop,), daemon=True)
        with mock.patch.object(members, "join", side_effect=gone):
            self.ours.start()
            waiting.start()
            self.assert_unsure(self.ours.id)
            waiting.join(0.3)  # it waits longer than that, however slow it is
            self.assertTrue(waiting.is_alive())
        self.ours.heartbeat()
        waiting.join(TIMEOUT)
        self.assertFalse(waiting.is_alive())
        self.ours.check(self.ours.id)

    def test_wait_until_joined_returns_at_stop(self):
        stop = threading.Event()
        stop.set()
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(members, "join", side_effect=gone):
            self.ours.start()
            self.ours.wait_until_joined(stop)

    def test_check_after_safe_fraction_of_timeout_raises(self):
        self.ours.heartbeat()
        self.now += LONG * 2 / 3 - 1
        self.ours.check(self.ours.id)
        self.now += 2
        self.assert_unsure(self.ours.id)
        self.ours.heartbeat()
        self.ours.check(self.ours.id)

    def test_validity_counts_from_before_database_call(self):
        real = members.heartbeat

        def slow(process_id):
            found = real(process_id)
            self.now += LONG
            return found

        self.ours.heartbeat()
        with mock.patch.object(members, "heartbeat", slow):
            self.ours.heartbeat()
        self.assert_unsure(self.ours.id)

    def test_heartbeat_after_expiry_joins_under_new_id(self):
        self.start()
        before = self.ours.id
        members.expire(before)
        self.ours.heartbeat()
        self.assertNotEqual(before, self.ours.id)
        self.assertEqual([self.ours.id], self.living())
        self.assertEqual([self.ours.id], self.files())
        self.assert_unsure(before)
        self.ours.check(self.ours.id)

    def test_check_during_rejoin_raises_for_former_id(self):
        self.ours.heartbeat()
        before = self.ours.id

        def sleeping():
            if self.ours.id == before:
                self.now += LONG
                members.expire(before)
                with mock.patch.object(membership, "boot_clock", lambda: self.now):
                    self.ours.heartbeat()
            return self.now

        with mock.patch.object(membership, "boot_clock", sleeping):
            self.assert_unsure(before)
        self.assertNotEqual(before, self.ours.id)


class StopTest(MembershipCase):
    """The end of a process."""

    def test_stop_leaves_no_row_file_or_descriptor(self):
        others = base.liveness_fds()
        self.start()
        self.assertEqual([self.ours.id], self.files())
        self.assertEqual(1, len(set(base.liveness_fds()) - set(others)))
        self.assertTrue(self.is_open())
        self.ours.stop()
        self.assertEqual(([], []), (self.living(), self.files()))
        self.assertEqual(others, base.liveness_fds())
        self.assertFalse(self.is_open())
        self.assert_unsure(self.ours.id)

    def is_open(self):
        """Return whether this process has its liveness file open, removed or not."""
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if self.ours.id in f"{path.readlink()}":
                    return True
        return False

    def test_stop_before_start_succeeds(self):
        self.ours.stop()

    def test_late_heartbeat_after_stop_does_not_rejoin(self):
        self.start()
        self.ours.stop()
        self.ours.heartbeat()
        self.assertEqual(([], []), (self.living(), self.files()))

    def test_stop_with_running_tool_keeps_row(self):
        self.start()
        tool = subprocess.Popen(["sleep", "600"], pass_fds=base.liveness_fds())
        self.addCleanup(tool.wait)
        self.addCleanup(tool.kill)
        self.ours.stop()
        self.assertEqual([self.ours.id], self.living())
        other = Membership()
        other.heartbeat()
        other.expire_dead_members()
        self.assertIn(self.ours.id, self.living())
        tool.kill()
        tool.wait(TIMEOUT)
        other.heartbeat()
        other.expire_dead_members()
        self.assertEqual([other.id], self.living())

    def test_stop_without_database_is_expired_by_others(self):
        self.start()
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(members, "expire", side_effect=gone):
            self.ours.stop()
        other = Membership()
        other.heartbeat()
        other.expire_dead_members()
        self.assertEqual([other.id], self.living())


class ExpireTest(MembershipCase):
    """Removal of dead members."""

    def test_expire_member_without_heartbeat_for_timeout(self):
        for name in ("talking", "silent"):
            members.join(name, name)
        self.heartbeat_and_expire()
        self.heartbeat_and_expire(LONG / 2)
        members.heartbeat("talking")
        self.heartbeat_and_expire(LONG / 2)
        self.assertCountEqual([self.ours.id, "talking", "silent"], self.living())
        self.heartbeat_and_expire(1)
        self.assertCountEqual([self.ours.id, "talking"], self.living())
        self.assertEqual(1, self.lost)
        self.heartbeat_and_expire(1)
        self.assertEqual(1, self.lost)

    def test_expire_unlocked_member_before_join_completes(self):
        folder = Path(CONF.state_path) / "processes"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "gone").touch()
        members.join("gone", "gone")
        self.ours.heartbeat()
        self.assertEqual([self.ours.id], self.living())
        self.assertEqual([], self.files())

    def test_expire_ignores_jumps_of_database_clock(self):
        members.join("talking", "talking")
        self.heartbeat_and_expire()
        for seconds in (LONG + 60, -LONG - 60):
            self.make_silent("talking", seconds)
            self.heartbeat_and_expire(LONG / 2)
            self.assertIn("talking", self.living())

    def test_expire_keeps_member_with_heartbeat_at_last_moment(self):
        members.join("talking", "talking")
        self.heartbeat_and_expire()
        self.heartbeat_and_expire(LONG / 2)
        before = members.list_living()
        members.heartbeat("talking")
        with mock.patch.object(members, "list_living", return_value=before):
            self.heartbeat_and_expire(LONG / 2 + 1)
        self.assertIn("talking", self.living())

    def test_is_oldest_passes_on_when_older_member_is_removed(self):
        self.assertTrue(self.ours.is_oldest())  # It was never started.
        members.join("older", "older")
        self.start()
        self.assertFalse(self.ours.is_oldest())
        members.expire("older")
        self.assertTrue(self.ours.is_oldest())
        members.expire(self.ours.id)
        self.assertFalse(self.ours.is_oldest())

    def test_expire_with_unreadable_file_continues_with_others(self):
        folder = Path(CONF.state_path) / "processes"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "not-a-file").mkdir()
        members.join("silent", "silent")
        self.heartbeat_and_expire()
        self.heartbeat_and_expire(LONG / 2)
        self.heartbeat_and_expire(LONG / 2 + 1)
        self.assertEqual([self.ours.id], self.living())

    def start_process(self):
        """Return another process, its id, and the process id of a tool that it runs."""
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _OTHER, CONF.state_path,
             CONF.database.connection],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        process_id, tool = process.stdout.readline().split()
        self.addCleanup(self.kill, int(tool))
        return process, process_id, int(tool)

    def kill(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def test_expire_killed_process_after_its_tools_ended(self):
        process, other, tool = self.start_process()
        self.heartbeat_and_expire()
        self.assertCountEqual([self.ours.id, other], self.living())
        process.kill()
        process.wait(TIMEOUT)
        self.heartbeat_and_expire()
        self.assertIn(other, self.living(), "its tool may still change something")
        self.assertEqual(0, self.lost)
        self.kill(tool)

        def is_buried():
            self.heartbeat_and_expire()
            return other not in self.living()

        wait_until(is_buried)
        self.assertEqual(1, self.lost)
        self.assertNotIn(other, self.files())

    def test_expire_keeps_suspended_process_with_locked_file(self):
        process, other, _ = self.start_process()
        self.heartbeat_and_expire()
        process.send_signal(signal.SIGSTOP)
        self.heartbeat_and_expire()
        self.assertIn(other, self.living())
        process.send_signal(signal.SIGCONT)

    def test_expire_leaves_no_file_open(self):
        self.start_process()
        self.start()
        opened = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            self.heartbeat_and_expire()
        self.assertLess(len(list(Path("/proc/self/fd").iterdir())), opened + 10)

    def test_start_creates_liveness_file_removed_by_other_member(self):
        real, others = fcntl.flock, base.liveness_fds()
        taken = []

        def flock(file, operation):
            if not taken:
                taken.append(self.ours.id)
                (Path(CONF.state_path) / "processes" / self.ours.id).unlink()
            real(file, operation)

        with mock.patch.object(fcntl, "flock", flock):
            self.ours._lock_liveness_file()
        self.assertEqual(taken, self.files())
        self.assertEqual(1, len(set(base.liveness_fds()) - set(others)))


class SuspendedTest(MembershipCase):
    """A process that was suspended or cut off does not count that time."""

    def test_expire_after_own_disconnection_keeps_others(self):
        members.join("silent", "silent")
        self.heartbeat_and_expire()
        self.heartbeat_and_expire(LONG * 2 / 3 + 1)
        self.heartbeat_and_expire(LONG / 2)
        self.assertIn("silent", self.living())
        self.heartbeat_and_expire(LONG / 2 + 1)
        self.assertEqual([self.ours.id], self.living())

    def test_expire_after_suspend_waits_for_own_heartbeat(self):
        members.join("silent", "silent")
        self.heartbeat_and_expire()
        self.now += 2 * LONG
        self.ours.expire_dead_members()
        self.assertIn("silent", self.living())
        self.heartbeat_and_expire()
        self.assertIn("silent", self.living())
        self.heartbeat_and_expire(LONG / 2)
        self.heartbeat_and_expire(LONG / 2 + 1)
        self.assertEqual([self.ours.id], self.living())

    def test_expire_after_suspend_during_read_keeps_others(self):
        members.join("silent", "silent")
        self.heartbeat_and_expire()
        living = members.list_living

        def sleep_and_heartbeat():
            rows = living()
            self.now += 2 * LONG
            self.ours.heartbeat()
            return rows

        with mock.patch.object(members, "list_living", sleep_and_heartbeat):
            self.ours.expire_dead_members()
        self.heartbeat_and_expire(1)
        self.assertIn("silent", self.living())

# SPDX-License-Identifier: Apache-2.0
"""Tests that volume leases of processes which are killed never have two holders.

The processes act as two machines: two of them share a directory of lock files, and two others
share another one.  A holder locks a file that must be free, and records the generation of its
lease.  The kernel releases that file before it releases the liveness lock of the process, since
the file was opened earlier.
"""

import contextlib
from pathlib import Path
import random
import subprocess
import sys
import tempfile
import time
import unittest

from attachd.db.cluster import members
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

TAKEOVER_TIME = 30.0
"""Seconds; a third of it is what a busy machine may delay a process inside."""

KILLS = 6
EACH = 5
"""How many times each of the last ones has to have it."""

_WORKER = """
import fcntl, os, pathlib, random, sys, threading, time
here, machine, name, url, volume_id, member_timeout = sys.argv[1:]
here = pathlib.Path(here)
inside = os.open(here / "inside", os.O_CREAT | os.O_RDWR)
log = os.open(here / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

from attachd import exception
from attachd.conf import CONF
from attachd.db.cluster import volume_leases
from attachd.db.engine import session
from attachd.drivers import base
from attachd.manager.ownership import volume_lease
from attachd.manager.ownership.membership import Membership

CONF.set_override("state_path", f"{here / machine}")
CONF.set_override("connection", url, group="database")
CONF.set_override("member_timeout", float(member_timeout), group="manager")
CONF.set_override("attach_timeout", 300, group="rpc")
ours = Membership()
ours.start()
ours.wait_until_joined(threading.Event())


def say(*words):
    os.write(log, (" ".join(map(str, words)) + "\\n").encode())


def work(lease):
    lease.run_with_lease(volume_leases.acquire_committed)
    base.check_still_owner()
    try:
        fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("two", name, lease.token.generation)
        return
    say("in", name, lease.token.generation)
    if (here / f"hold-{name}").exists():
        say("holds", name, lease.token.generation)
        time.sleep(3600)
    time.sleep(random.uniform(0, 0.01))
    fcntl.flock(inside, fcntl.LOCK_UN)
    with session.writer() as connection:
        volume_leases.release_with_result(connection, lease.token)
    volume_leases.confirm(lease.token, {}, ended=True)


while not (here / "stop").exists():
    try:
        with volume_lease.acquire(ours, volume_id, f"{here / machine / 'lock'}") as lease:
            work(lease)
    except (exception.Unavailable, exception.BackendError) as error:
        say("refused", name, error)
        time.sleep(0.1)
ours.stop()
"""


@full_only("crash")
class LeasesOnSqlite(unittest.TestCase):
    """Two processes on each of two machines."""

    kind = "sqlite"

    def setUp(self):
        super().setUp()
        self.url = databases.use(self, self.kind)
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.volume_id = db_rows.add_volume()["id"]
        self.workers = {}
        self.started = 0
        for machine in ("one", "one", "two", "two"):
            self.start(machine)

    def start(self, machine):
        self.started += 1
        name = f"{machine}-{self.started}"
        errors = (self.folder / f"{name}.err").open("wb")
        self.addCleanup(errors.close)
        (self.folder / machine).mkdir(exist_ok=True)
        where = (self.folder, machine, name, self.url, self.volume_id, TAKEOVER_TIME)
        worker = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _WORKER, *map(str, where)], stderr=errors
        )
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        self.workers[name] = worker

    def kill(self, name):
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait(TIMEOUT)
        self.start(name.partition("-")[0])

    def said(self):
        with contextlib.suppress(FileNotFoundError):
            return [line.split() for line in (self.folder / "log").read_text().splitlines()]
        return []

    def count_leases(self, name, since=0):
        """Return how many times a worker has had the volume."""
        return sum(line[:2] == ["in", name] for line in self.said()[since:])

    def wait_until(self, seen):
        wait_until(
            lambda: seen() or self.check_workers(),
            lambda: f"{self.said()[-20:]} {members.list_living()}",
        )

    def check_workers(self):
        """Fail if a worker has ended by itself."""
        for name, worker in self.workers.items():
            if worker.poll() is not None:
                self.fail(f"{name}: {(self.folder / f'{name}.err').read_text()}")

    def wait_until_all_had_it(self, times):
        since = len(self.said())
        self.wait_until(
            lambda: all(self.count_leases(worker, since) >= times for worker in self.workers)
        )

    def hold(self, name):
        """Let a worker have the volume, and not let it go."""
        (self.folder / f"hold-{name}").touch()
        self.wait_until(lambda: ["holds", name] in [line[:2] for line in self.said()])
        since = len(self.said())
        time.sleep(0.5)  # for what must not happen: a slow machine only sees less of it
        self.assertEqual([], self.said()[since:], "no other process gets it")

    def test_volume_lease_has_one_holder_and_passes_from_killed_processes(self):
        self.wait_until_all_had_it(1)
        for machine in ("one", "two"):
            name = next(item for item in self.workers if item.startswith(machine))
            self.hold(name)
            self.kill(name)
            self.wait_until_all_had_it(1)
        for _ in range(KILLS):
            self.kill(random.choice(list(self.workers)))
            # Until anywhere in their work, or before they have begun: what follows is the same.
            time.sleep(random.uniform(0.2, 0.8))
        self.wait_until_all_had_it(EACH)
        said = self.said()
        self.assertEqual([], [line for line in said if line[0] == "two"])
        generations = [int(line[2]) for line in said if line[0] == "in"]
        self.assertEqual(sorted(set(generations)), generations)
        (self.folder / "stop").touch()
        for worker in self.workers.values():
            self.assertEqual(0, worker.wait(TIMEOUT))
        self.assertIsNone(db_rows.get_volume(self.volume_id)["lease_holder"])
        ours = {row["id"] for row in members.list_living()}
        files = {path.name for path in self.folder.glob("*/processes/*")}
        self.assertEqual((set(), set()), (ours - files, files - ours))


class LeasesOnMariadb(LeasesOnSqlite):
    """Its locks are of rows."""

    kind = "mariadb"


class LeasesOnPostgresql(LeasesOnSqlite):
    """As are those of this one."""

    kind = "postgresql"

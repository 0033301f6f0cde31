# SPDX-License-Identifier: Apache-2.0
"""Tests of two managers of one backend, as if on two machines, when one is killed or paused."""

import os
from pathlib import Path
import random
import signal
import sys
import threading
import time

import sqlalchemy as sa
import testtools

from attachd.tests.fixtures import recording_manager
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.fixtures.processes import Process
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

TAKEOVER = 24.0
"""Seconds; a process that is delayed for half of it still counts as alive."""
CLIENTS = 8
VOLUMES = 4

_MORE = """
[manager]
member_timeout = {takeover}
report_interval = 1

[rpc]
attach_timeout = 40
"""


@full_only("crash")
class TakeoverTest(testtools.TestCase):
    """MariaDB, RabbitMQ, gunicorn, and a file backend in a folder that all machines share."""

    kind = "mariadb"

    def setUp(self):
        super().setUp()
        self.deployment = Deployment(self, self.kind, workers=1)
        self.record = self.deployment.folder / "record"
        self.state = Path(self.deployment.folder / "shared")
        with (self.deployment.folder / "attachd.conf").open("a", encoding="utf-8") as file:
            file.write(_MORE.format(takeover=TAKEOVER))
            file.write(f"[file]\nfile_folder = {self.state}\n")
        self.engine = sa.create_engine(self.deployment.database)
        self.addCleanup(self.engine.dispose)
        self.trouble = []
        self.stop = threading.Event()

    def start_manager(self, machine, pause=0.0):
        """Start a manager of a machine of its own: it sees no file of the others' but volumes."""
        configuration = self.deployment.folder / f"{machine}.conf"
        configuration.write_text(
            (self.deployment.folder / "attachd.conf")
            .read_text()
            .replace("/state\n", f"/state-{machine}\n")
        )
        process = Process(
            self,
            sys.executable,
            "-m",
            "attachd.tests.fixtures.recording_manager",
            f"{self.record}",
            f"{pause}",
            f"{self.gate(machine)}",
            f"--config-file={configuration}",
            env=self.deployment.environment,
        )
        process.show_in_failures(self)
        process.wait_for("Serving backend")
        return process

    def gate(self, machine):
        """Return the file which, where it is, keeps a manager from making changes."""
        return self.deployment.folder / f"gate-{machine}"

    def show(self, path):
        answer = self.deployment.api.request("GET", path)
        return next(iter(answer.body.values())) if answer.status == 200 else None

    def rows(self, sql, **values):
        with self.engine.connect() as connection:
            return connection.execute(sa.text(sql), values).all()

    def half_way(self):
        """Return what is in work, or was when its manager died."""
        return self.rows(
            "SELECT a.id, a.state, v.lease_holder FROM attachments a "
            "JOIN volumes v ON v.id = a.volume_id "
            "WHERE a.state IN ('connecting', 'disconnecting') "
            "UNION SELECT id, state, lease_holder FROM volumes WHERE lease_holder IS NOT NULL"
        )

    def processes(self):
        return [row[0] for row in self.rows("SELECT id FROM members")]

    def cycle(self, number, volumes):
        """Attach and detach, as a client that repeats what was not answered."""
        rng = random.Random(number)
        while not self.stop.is_set():
            body = {"attachment": {"volume_uuid": rng.choice(volumes)}}
            answer = self.deployment.api.request("POST", "/attachments", body)
            if answer.status != 200:
                self.trouble.append(answer)
                return
            attachment = f"/attachments/{answer.body['attachment']['id']}"
            connector = {"attachment": {"connector": {"host": f"host-{number}"}}}
            for method, path, wanted in (
                ("PUT", attachment, connector),
                ("DELETE", attachment, None),
            ):
                answer = self.deployment.api.request(method, path, wanted)
                while answer.status in {500, 503, 504}:
                    answer = self.deployment.api.request(method, path, wanted)
                if answer.status not in {200, 404}:
                    self.trouble.append((method, answer))

    def test_takeover_of_one_of_two_managers_killed_under_load_completes(self):
        first, second = (self.start_manager(name, pause=0.02) for name in ("one", "two"))
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        body = {"volume_type": {"name": "many", "extra_specs": {"multiattach": "<is> True"}}}
        self.deployment.api.request_json("POST", "/types", body)
        volumes = [self.deployment.api.create_volume(volume_type="many") for _ in range(VOLUMES)]
        clients = [
            threading.Thread(target=self.cycle, args=(number, volumes), daemon=True)
            for number in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        wait_until(
            lambda: (
                len(recording_manager.read_record(self.record)) > 200 and self.both_have_worked()
            )
        )

        ids = set(self.processes())
        alive = self.id_of(second)
        (dead,) = ids - {alive}
        died = {self.worker_of(first): time.monotonic()}
        os.killpg(first.pid, signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: dead not in self.processes())
        buried = time.monotonic() - killed
        wait_until(lambda: dead not in {row[2] for row in self.half_way()})
        taken_over = time.monotonic() - killed
        count = len(recording_manager.read_record(self.record))
        wait_until(lambda: len(recording_manager.read_record(self.record)) > count + 100)
        self.stop.set()
        for client in clients:
            client.join(TIMEOUT)
        wait_until(lambda: not self.half_way())
        self.assertEqual([], self.trouble)
        self.assertEqual([], self.show("/attachments"))
        self.assertEqual(
            [],
            list(
                recording_manager.find_overlaps(recording_manager.read_record(self.record), died)
            ),
        )
        exports = [path for path in self.state.rglob("*") if path.is_symlink()]
        self.assertEqual([], exports)
        figures = f"dead for others after {buried:.1f} s, all taken over after {taken_over:.1f} s"
        sys.stderr.write(f"\ntakeover_time {TAKEOVER} s: {figures}\n")

    def both_have_worked(self):
        return len({entry.pid for entry in recording_manager.read_record(self.record)}) == 2

    def since(self, count):
        """Return what was recorded after so many entries."""
        return {entry.what for entry in recording_manager.read_record(self.record)[count:]}

    def id_of(self, process):
        """Return under which id a manager is known to others."""
        name = f"%:{self.worker_of(process)}"
        return self.rows("SELECT id FROM members WHERE name LIKE :name", name=name)[0][0]

    def worker_of(self, process):
        """Return the id of the process that does the work of a manager."""
        return int(process.wait_for(r"(\d+) INFO attachd.manager.service .* Serving")[1])

    def test_delete_at_one_manager_during_connect_at_the_other_waits_and_revokes(self):
        for machine in ("one", "two"):
            self.start_manager(machine, pause=1)
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        volume = self.deployment.api.create_volume()
        for number in range(3):
            self.connect_and_delete(volume, {"host": f"host-{number}"})
        # One may come to the queue long after the other.
        wait_until(
            lambda: self.both_have_worked() or self.connect_and_delete(volume, {"host": "late"})
        )
        self.assertEqual(
            [],
            list(recording_manager.find_overlaps(recording_manager.read_record(self.record), {})),
        )

    def connect_and_delete(self, volume, host):
        body = {"attachment": {"volume_uuid": volume}}
        attachment = self.deployment.api.request_json("POST", "/attachments", body)["attachment"][
            "id"
        ]
        path, started = (
            f"/attachments/{attachment}",
            len(recording_manager.read_record(self.record)),
        )
        wanted = {"attachment": {"connector": host}}
        asking = threading.Thread(target=self.deployment.api.request, args=("PUT", path, wanted))
        asking.start()
        wait_until(lambda: self.methods_since(started) == ["grant"])
        self.assertEqual(200, self.deployment.api.request("DELETE", path).status)
        asking.join(TIMEOUT)
        self.assertEqual(["grant", "revoke"], self.methods_since(started))
        self.assertIsNone(self.show(path))
        self.assertEqual([], [item for item in self.state.rglob("*") if item.is_symlink()])

    def methods_since(self, count):
        """Return which methods of the driver were begun after so many entries."""
        entries = recording_manager.read_record(self.record)[count:]
        return [entry.method for entry in entries if entry.what == "begins"]

    def test_paused_manager_after_takeover_changes_nothing(self):
        sleeper = self.start_manager("one")
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        volume = self.deployment.api.create_volume()
        body = {"attachment": {"volume_uuid": volume}}
        answer = self.deployment.api.request_json("POST", "/attachments", body)
        attachment = f"/attachments/{answer['attachment']['id']}"
        connector = {"attachment": {"connector": {"host": "here"}}}
        self.gate("one").touch()
        asking = threading.Thread(
            target=self.deployment.api.request, args=("PUT", attachment, connector)
        )
        asking.start()
        wait_until(
            lambda: recording_manager.read_record(self.record)[-1][3:] == ("grant", "begins")
        )
        worker = self.worker_of(sleeper)
        os.kill(worker, signal.SIGSTOP)
        self.addCleanup(os.kill, worker, signal.SIGCONT)

        self.start_manager("two")
        wait_until(lambda: not self.half_way())
        self.assertTrue(self.show(attachment)["connection_info"])
        # RabbitMQ still hands the sleeper every second message.
        while (status := self.deployment.api.request("DELETE", attachment).status) == 504:
            pass
        self.assertIn(status, {200, 404})
        before = len(recording_manager.read_record(self.record))
        self.gate("one").unlink()
        os.kill(worker, signal.SIGCONT)
        sleeper.wait_for("joins again under a new id")
        wait_until(lambda: "refused" in self.since(before))
        asking.join(TIMEOUT)
        self.assertNotIn("changes", self.since(before))
        self.assertEqual([], [path for path in self.state.rglob("*") if path.is_symlink()])
        self.assertIsNone(self.show(attachment))
        wait_until(lambda: len(self.processes()) == 2)
        # As another one it is as good as before.
        body = {"attachment": {"volume_uuid": volume}}
        answer = self.deployment.api.request_json("POST", "/attachments", body)
        attachment = f"/attachments/{answer['attachment']['id']}"
        for request in (("PUT", attachment, connector), ("DELETE", attachment)):
            self.assertEqual(200, self.deployment.api.request(*request).status)

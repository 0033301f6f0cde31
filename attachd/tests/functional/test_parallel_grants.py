# SPDX-License-Identifier: Apache-2.0
"""Tests of a manager process that is killed while many hosts are connected to one volume."""

import contextlib
import http.client
import os
import signal
import threading

import sqlalchemy as sa
import testtools

from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.fixtures.processes import child_pids
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

HOSTS = 6

_LIMITS = """
[rpc]
max_calls = 64
max_calls_per_volume = 64
max_calls_per_project = 64
max_calls_per_backend = 64
"""


@full_only("crash")
class KilledGroupTest(testtools.TestCase):
    """MariaDB, RabbitMQ, gunicorn, and a backend that takes two seconds for each call."""

    def setUp(self):
        super().setUp()
        self.deployment = Deployment(self, "mariadb", backend="slow", workers=1)
        self.deployment.configure(_LIMITS)
        self.manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.api = self.deployment.api
        engine = sa.create_engine(self.deployment.database)
        self.addCleanup(engine.dispose)
        self.engine = engine

    def query(self, sql):
        with self.engine.connect() as connection:
            return connection.execute(sa.text(sql)).scalars().all()

    def states(self):
        return self.query("SELECT state FROM attachments")

    def create_volume(self):
        values = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}
        self.api.request_json("POST", "/types", {"volume_type": values})
        return self.api.create_volume(volume_type="shared")

    def send(self, method, path, body=None):
        """Send a request, whose answer does not matter, from a thread of its own."""

        def request():
            with contextlib.suppress(http.client.HTTPException, OSError):
                self.deployment.api.request(method, path, body)

        threading.Thread(target=request, daemon=True).start()

    def kill_worker(self):
        (worker,) = child_pids(self.manager.pid)
        os.kill(worker, signal.SIGKILL)

    def finish(self, state, repeat):
        """Repeat the calls that did not begin until all attachments are in a state."""

        def finished():
            if {"connecting", "disconnecting"} & set(self.states()):
                return False
            repeat()
            return set(self.states()) <= state

        wait_until(finished, self.states)
        wait_until(lambda: self.query("SELECT lease_holder FROM volumes") == [None])

    def test_kill_during_parallel_grants_and_revokes_is_recovered(self):
        volume = self.create_volume()
        ids = [
            self.api.request_json("POST", "/attachments", {"attachment": {"volume_uuid": volume}})
            for _ in range(HOSTS)
        ]
        paths = [f"/attachments/{made['attachment']['id']}" for made in ids]

        def connect(send):
            for number, path in enumerate(paths):
                names = {"host": f"h{number}", "initiator": f"iqn.2000-01.org.example:{number}"}
                send("PUT", path, {"attachment": {"connector": names}})

        connect(self.send)
        wait_until(lambda: self.states().count("connecting") >= HOSTS // 2, self.states)
        self.kill_worker()
        self.finish({"connected"}, lambda: connect(self.api.request))
        self.assertEqual(["connected"] * HOSTS, self.states())
        for path in paths:
            self.send("DELETE", path)
        wait_until(lambda: self.states().count("disconnecting") >= HOSTS // 2, self.states)
        self.kill_worker()
        self.finish(set(), lambda: [self.api.request("DELETE", path) for path in paths])
        self.assertEqual("available", self.api.status(volume))

# SPDX-License-Identifier: Apache-2.0
"""Tests of managers that are stopped or reloaded during their work."""

import signal
import threading
import unittest

import sqlalchemy as sa

from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

SLOW = "[slow]\nfake_delay = 900\n"  # longer than the end of a process is waited for
FAST = "[slow]\nfake_delay = 0\n"
TRANSITIONAL = ("creating", "deleting", "extending", "connecting", "disconnecting")


@full_only("crash")
class GracefulEndTest(unittest.TestCase):
    """A backend that is slow, over RabbitMQ and MariaDB."""

    def setUp(self):
        super().setUp()
        self.deployment = Deployment(self, "mariadb", backend="slow", workers=1)
        self.engine = sa.create_engine(self.deployment.database, poolclass=sa.NullPool)

    def start(self):
        manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        return manager

    def create_volume(self, **values):
        """Create a volume without waiting for it."""
        answer = self.deployment.api.request("POST", "/volumes", {"volume": {"size": 1, **values}})
        self.assertEqual(202, answer.status, answer)
        return answer.body["volume"]["id"]

    def rows(self, statement):
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def due(self):
        """Return the operations in progress, by the rows."""
        found = self.rows("SELECT id, state FROM volumes UNION SELECT id, state FROM attachments")
        return [row for row in found if row[1] in TRANSITIONAL]

    def attaching(self, volume):
        """Start to attach; return a function that waits for the response."""
        answers = []

        def attach():
            body = {"attachment": {"volume_uuid": volume, "connector": {"host": "here"}}}
            answers.append(self.deployment.api.request("POST", "/attachments", body))

        client = threading.Thread(target=attach)
        client.start()
        wait_until(lambda: self.due() or answers)

        def answer():
            client.join(TIMEOUT)
            return answers[0]

        return answer

    def test_shutdown_during_attach_finishes_it_and_leaves_nothing(self):
        manager = self.start()
        volume = self.deployment.api.create_volume()
        self.assertEqual(1, len(self.rows("SELECT id FROM members")))
        answer = self.attaching(volume)
        self.assertEqual(0, manager.end())
        self.assertEqual(200, answer().status)
        self.assertEqual([], self.due())
        self.assertEqual([], self.rows("SELECT id FROM members"))
        self.assertNotIn("Traceback", manager.output)

    def test_sighup_during_attach_finishes_it_and_serves_the_next(self):
        manager = self.start()
        volume, other = (self.deployment.api.create_volume() for _ in range(2))
        answer = self.attaching(volume)
        manager.send(signal.SIGHUP)
        self.assertEqual(200, answer().status)
        manager.wait_for("(?s)" + ".*".join(["Serving backend"] * 2))
        self.assertEqual(200, self.attaching(other)().status)
        self.assertEqual(0, manager.end())
        self.assertEqual([], self.rows("SELECT id FROM members"))

    def test_shutdown_with_queued_or_long_work_leaves_it_to_the_next_manager(self):
        self.deployment.configure(FAST)
        manager = self.start()
        self.assertEqual(0, manager.end())
        self.deployment.configure(
            f"[DEFAULT]\ngraceful_shutdown_timeout = 8\n[manager]\nthreads_per_backend = 1\n{SLOW}"
        )
        manager = self.deployment.start_manager()
        volumes = [self.create_volume() for _ in range(4)]
        self.assertEqual(0, manager.end())
        # No manager has it: it waits in the queue.
        volumes.append(self.create_volume())
        self.assertEqual({"creating"}, {self.deployment.api.status(volume) for volume in volumes})
        self.deployment.configure(FAST)
        self.deployment.start_manager()
        for volume in volumes:
            self.deployment.api.wait_for(volume, "available")
        self.assertEqual([], self.due())

    def test_shutdown_during_clone_leaves_it_to_the_next_manager(self):
        self.deployment.configure(FAST)
        manager = self.start()
        source = self.deployment.api.create_volume()
        self.assertEqual(0, manager.end())
        self.deployment.configure(SLOW)
        manager = self.deployment.start_manager()
        copy = self.create_volume(source_volid=source)
        leased = "SELECT id FROM volumes WHERE lease_holder IS NOT NULL"
        wait_until(lambda: self.rows(leased) == [(copy,)])
        self.assertEqual(0, manager.end())
        self.assertEqual("creating", self.deployment.api.status(copy))
        self.deployment.configure(FAST)
        self.deployment.start_manager()
        self.deployment.api.wait_for(copy, "available")
        self.assertEqual("available", self.deployment.api.status(source))

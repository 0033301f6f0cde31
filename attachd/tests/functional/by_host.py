# SPDX-License-Identifier: Apache-2.0
"""A host that attaches by itself, and what is to be true of it; for the tests of that.

The API and a manager in one process, with a scripted agent behind the message queue.
"""

import unittest

from attachd.manager.ha.recovery import RecoveryLoop
from attachd.tests import agents, rows, wait
from attachd.tests.functional import served

HOST = "node-1"
SERVER = "11111111-2222-4333-8444-555555555555"
OWN = {"version": f"{served.LATEST}, attachd 1.0", "token": served.ADMIN}
LATER = {"prefer": "respond-async"}


class Case(unittest.TestCase):
    """Each test has a volume, and a host with a scripted agent behind the message queue."""

    kind = "sqlite"

    def setUp(self):
        """Begin to serve."""
        super().setUp()
        self.api = served.use(self, self.kind)
        self.driver = self.api.backend.driver
        self.agent = agents.Agent(self, HOST)
        self.volume = rows.add_volume()["id"]

    def post(self, **options):
        """Have the host attach the volume."""
        fields = {"volume_uuid": self.volume, "host": HOST, **options.pop("fields", {})}
        return self.api.ask("POST", "/attachments", {"attachment": fields}, **OWN, **options)

    def attached(self, **options):
        """Have it done, and return the id of the attachment."""
        answer = self.post(**options)
        self.assertEqual(200, answer.status, answer.raw)
        self.assertEqual("attached", answer.body["attachment"]["status"])
        return answer.body["attachment"]["id"]

    def delete(self, identity, query="", **options):
        """Delete an attachment."""
        return self.api.ask("DELETE", f"/attachments/{identity}{query}", **{**OWN, **options})

    def action(self, **body):
        """Ask for an action of the volume."""
        return self.api.ask("POST", f"/volumes/{self.volume}/action", body, **OWN)

    def recover_until_gone(self):
        """Have done what is left to do, until no attachment is there."""
        caretaker = RecoveryLoop(self.api.backend)
        wait.wait_until(lambda: caretaker.run_once() or not rows.attachments(), rows.attachments)

    def only(self):
        """Return the row of the only attachment."""
        (row,) = rows.attachments()
        return row

    def assert_nothing_left(self):
        """See that host, backend and database have nothing of it."""
        self.assertEqual({}, self.agent.devices)
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], rows.attachments())
        self.assertEqual("available", rows.volume(self.volume)["status"])

    def assert_attached(self, identity):
        """See that host, backend and database agree that it is attached."""
        self.assertEqual(("attached", HOST), (self.only()["state"], self.only()["agent"]))
        self.assertEqual({identity}, set(self.agent.devices))
        self.assertEqual({identity}, self.driver.granted())
        self.assertEqual("in-use", rows.volume(self.volume)["status"])

# SPDX-License-Identifier: Apache-2.0
"""A test case with a scripted agent behind the message queue.

The API and a manager run in the test process.
"""

import unittest

from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.tests import wait
from attachd.tests.fixtures import db_rows, fake_agent, wsgi_api

HOST = "node-1"
SERVER = "11111111-2222-4333-8444-555555555555"
ATTACHD_1_0 = {"version": f"{wsgi_api.LATEST}, attachd 1.0", "token": wsgi_api.ADMIN}
LATER = {"prefer": "respond-async"}


class HostAttachCase(unittest.TestCase):
    """Each test has a volume, and a host with a scripted agent behind the message queue."""

    kind = "sqlite"

    def setUp(self):
        """Begin to serve."""
        super().setUp()
        self.api = wsgi_api.use(self, self.kind)
        self.driver = self.api.backend.driver
        self.agent = fake_agent.FakeAgent(self, HOST)
        self.volume = db_rows.add_volume()["id"]

    def post(self, **options):
        """Have the host attach the volume."""
        fields = {"volume_uuid": self.volume, "host": HOST, **options.pop("fields", {})}
        return self.api.request(
            "POST", "/attachments", {"attachment": fields}, **ATTACHD_1_0, **options
        )

    def attached(self, **options):
        """Have it done, and return the id of the attachment."""
        answer = self.post(**options)
        self.assertEqual(200, answer.status, answer.raw)
        self.assertEqual("attached", answer.body["attachment"]["status"])
        return answer.body["attachment"]["id"]

    def delete(self, identity, query="", **options):
        """Delete an attachment."""
        return self.api.request(
            "DELETE", f"/attachments/{identity}{query}", **{**ATTACHD_1_0, **options}
        )

    def action(self, **body):
        """Ask for an action of the volume."""
        return self.api.request("POST", f"/volumes/{self.volume}/action", body, **ATTACHD_1_0)

    def recover_until_deleted(self):
        """Have done what is left to do, until no attachment is there."""
        recovery = RecoveryLoop(self.api.backend)
        wait.wait_until(
            lambda: recovery.run_once() or not db_rows.list_attachments(),
            db_rows.list_attachments,
        )

    def only(self):
        """Return the row of the only attachment."""
        (row,) = db_rows.list_attachments()
        return row

    def assert_nothing_left(self):
        """See that host, backend and database have nothing of it."""
        self.assertEqual({}, self.agent.devices)
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], db_rows.list_attachments())
        self.assertEqual("available", db_rows.get_volume(self.volume)["status"])

    def assert_attached(self, identity):
        """See that host, backend and database agree that it is attached."""
        self.assertEqual(("attached", HOST), (self.only()["state"], self.only()["agent"]))
        self.assertEqual({identity}, set(self.agent.devices))
        self.assertEqual({identity}, self.driver.granted())
        self.assertEqual("in-use", db_rows.get_volume(self.volume)["status"])

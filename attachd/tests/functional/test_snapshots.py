# SPDX-License-Identifier: Apache-2.0
"""Tests of snapshots: calls while one is taken, and what one has of its volume."""

import threading

from attachd import exception
from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import TIMEOUT, wait_until


class SnapshotCase(ApiCase):
    """A volume; the manager works in other threads."""

    def setUp(self):
        super().setUp()
        self.volume = self.create(size=1)

    def create(self, **wanted):
        made = self.expect(202, "POST", "/volumes", {"volume": wanted}).body["volume"]["id"]
        wait_until(lambda: self.get(f"/volumes/{made}", "volume")["status"] == "available")
        return made

    def take(self, volume_id=None):
        body = {"snapshot": {"volume_id": volume_id or self.volume, "force": True}}
        return self.expect(202, "POST", "/snapshots", body).body["snapshot"]["id"]

    def get(self, path, name):
        return self.api.request("GET", path).body.get(name, {"status": "gone"})

    def wait_for(self, snapshot, status):
        path = f"/snapshots/{snapshot}"
        wait_until(lambda: self.get(path, "snapshot")["status"] == status)


class MeanwhileTest(SnapshotCase):
    """The driver takes a snapshot, or makes a volume of one, until it may go on."""

    method = "create_snapshot"

    def setUp(self):
        super().setUp()
        self.started, self.go_on = threading.Event(), threading.Event()
        self.addCleanup(self.go_on.set)
        self.held = ""

        def script(call):
            if call.method == self.held:
                self.started.set()
                self.go_on.wait(TIMEOUT)

        self.driver.script = script
        self.driver.copies_snapshots = True

    def hold(self, method):
        self.held = method

    def test_volume_is_attached_and_detached_and_neither_extended_nor_deleted(self):
        self.hold("create_snapshot")
        taken = self.take()
        self.assertTrue(self.started.wait(TIMEOUT))
        attachment = self.create_attachment(self.volume, connector={"host": "compute-1"})
        self.expect(200, "DELETE", f"/attachments/{attachment}")
        for method, path, body in (
            ("POST", f"/volumes/{self.volume}/action", {"os-extend": {"new_size": 2}}),
            ("DELETE", f"/volumes/{self.volume}", None),
            ("DELETE", f"/snapshots/{taken}", None),
        ):
            answer = self.api.request(method, path, body)
            self.assertEqual(400, answer.status, answer.raw)
        self.go_on.set()
        self.wait_for(taken, "available")
        self.act(self.volume, "os-extend", {"new_size": 2})

    def test_snapshot_of_which_a_volume_is_made_is_not_deleted(self):
        taken = self.take()
        self.wait_for(taken, "available")
        self.hold("create_from_snapshot")
        body = {"volume": {"snapshot_id": taken}}
        made = self.expect(202, "POST", "/volumes", body).body["volume"]["id"]
        self.assertTrue(self.started.wait(TIMEOUT))
        answer = self.api.request("DELETE", f"/snapshots/{taken}")
        self.assertEqual(400, answer.status)
        self.assertIn(made, answer.fault)
        cascade = f"/volumes/{self.volume}?cascade=true"
        self.assertEqual(400, self.api.request("DELETE", cascade).status)
        self.go_on.set()
        wait_until(lambda: self.get(f"/volumes/{made}", "volume")["status"] == "available")
        self.expect(202, "DELETE", f"/snapshots/{taken}")
        self.wait_for(taken, "gone")

    def test_force_delete_of_a_snapshot_that_is_being_taken_leaves_nothing(self):
        self.hold("create_snapshot")
        taken = self.take()
        self.assertTrue(self.started.wait(TIMEOUT))
        action = {"os-force_delete": None}
        path = f"/snapshots/{taken}/action"
        self.expect(202, "POST", path, action, token=wsgi_api.ADMIN)
        self.go_on.set()
        self.wait_for(taken, "gone")
        self.assertEqual({}, self.driver.list_snapshots())


class FailureTest(SnapshotCase):
    """The driver fails."""

    def test_failed_snapshot_is_in_error_with_a_message_and_can_be_deleted(self):
        error = exception.BackendError("secret reason", final=True)
        with self.driver.raising(error, "create_snapshot"):
            taken = self.take()
            self.wait_for(taken, "error")
        # The state is stored before the message.
        wait_until(lambda: self.expect(200, "GET", "/messages").body["messages"])
        messages = self.expect(200, "GET", "/messages").body["messages"]
        self.assertEqual([taken], [item["resource_uuid"] for item in messages])
        self.assertNotIn("secret", f"{messages}")
        self.expect(202, "DELETE", f"/snapshots/{taken}")
        self.wait_for(taken, "gone")

    def test_cascade_deletes_the_volume_with_its_snapshots(self):
        for _ in range(3):
            self.wait_for(self.take(), "available")
        answer = self.api.request("DELETE", f"/volumes/{self.volume}")
        self.assertEqual(400, answer.status)
        self.expect(202, "DELETE", f"/volumes/{self.volume}?cascade=true")
        wait_until(lambda: self.get(f"/volumes/{self.volume}", "volume")["status"] == "gone")
        self.assertEqual({}, self.driver.list_snapshots())
        self.assertEqual([], self.expect(200, "GET", "/snapshots").body["snapshots"])

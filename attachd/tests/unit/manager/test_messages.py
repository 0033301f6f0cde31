# SPDX-License-Identifier: Apache-2.0
"""Users are told what went wrong in the background, and nothing else goes wrong by that."""

import unittest
from unittest import mock

from oslo_context import context as oslo_context

from attachd import context, exception
from attachd.db import messages as db
from attachd.db.paging import Page
from attachd.manager import attach, detach, volumes
from attachd.tests import backends, rows
from attachd.tests.backends import override


class MessagesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        # As the one that a message from the API leaves in the thread.
        asked = context.RequestContext(request_id="req-1", overwrite=True)
        self.addCleanup(setattr, oslo_context._request_store, "context", None)
        self.assertEqual("req-1", asked.request_id)

    def told(self):
        return [
            (row["resource_uuid"], row["project_id"], row["action_id"], row["detail_id"])
            for row in db.page({}, Page(limit=9))
        ]

    def fail(self, state, verb, method):
        volume_id = rows.add_volume(state, owner=backends.HOST, new_size_gib=3)["id"]
        with self.driver.failing(method):
            verb(self.backend, volume_id)
        return volume_id

    def test_of_volumes(self):
        for state, verb, numbers in (
            ("creating", volumes.create, ("008", "012")),
            ("deleting", volumes.delete, ("101", "101")),
            ("extending", volumes.extend, ("007", "010")),
        ):
            volume_id = self.fail(state, verb, verb.__name__)
            self.assertEqual((volume_id, rows.PROJECT, *numbers), self.told()[0])

    def test_of_attachments(self):
        volume_id = rows.add_volume()["id"]
        mine = rows.add_attachment(volume_id)["id"]
        with self.driver.failing("grant"), self.assertRaises(exception.ConnectFailed):
            attach.attach(self.backend, mine, volume_id, rows.CONNECTOR)
        self.assertEqual([(volume_id, rows.PROJECT, "004", "021")], self.told())
        with self.driver.failing("revoke"), self.assertRaises(exception.DisconnectFailed):
            detach.detach(self.backend, mine, volume_id)
        self.assertEqual((volume_id, rows.PROJECT, "102", "022"), self.told()[0])

    def test_a_backend_that_is_down_is_told_as_such(self):
        self.backend.error = "the cable is out"
        self.fail("creating", volumes.create, "create")
        self.assertEqual("002", self.told()[0][3])

    def test_the_request_that_asked_for_it_is_named(self):
        self.fail("creating", volumes.create, "create")
        self.assertEqual("req-1", db.page({}, Page(limit=1))[0]["request_id"])

    def test_how_long_it_is_kept_can_be_said(self):
        override(self, "message_ttl", 7, group="manager")
        self.fail("creating", volumes.create, "create")
        (row,) = db.page({}, Page(limit=1))
        self.assertEqual(7, (row["expires_at"] - row["created_at"]).total_seconds())

    def test_whatever_succeeds_is_not_told(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]
        volumes.create(self.backend, volume_id)
        self.assertEqual([], self.told())

    def test_a_message_that_cannot_be_stored_changes_nothing(self):
        with mock.patch.object(db, "create", side_effect=ZeroDivisionError):
            volume_id = self.fail("creating", volumes.create, "create")
        self.assertEqual("error", rows.volume(volume_id)["status"])

    def test_what_somebody_else_has_changed_is_not_told(self):
        volume_id = rows.add_volume("creating", owner=backends.HOST)["id"]

        def meddle(_call):
            rows.change_volume(volume_id, state="error", status="error")
            raise exception.BackendError("The shelf burns.")

        self.driver.script = meddle
        volumes.create(self.backend, volume_id)
        self.assertEqual([], self.told())

# SPDX-License-Identifier: Apache-2.0
"""Rows of sets: reserved together, completed or undone."""

import datetime
from unittest import mock

from oslo_db import exception as db_exception

from attachd import exception
from attachd.db import models
from attachd.db.attachments import attachment_sets, attachment_store
from attachd.db.attachments.attachment_store import Reservation
from attachd.db.engine import session
from attachd.tests.fixtures import databases, db_rows, fake_agent

HOST = "node-1"


def expire(set_id):
    table = models.attachment_sets
    past = models.now() - datetime.timedelta(seconds=1)
    session.write(table.update().where(table.c.id == set_id).values(expires_at=past))


class AttachmentSetsTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(HOST, max_attachments=3)
        self.set_id = models.new_id()

    def reservation(self, volume_id=None):
        values = {"id": models.new_id(), "project_id": db_rows.PROJECT, "agent": HOST}
        return Reservation(volume_id or db_rows.add_volume()["id"], values, None)

    def reserve(self, *reservations):
        return attachment_sets.reserve(self.set_id, reservations, None)

    def test_reserve_stores_all_in_the_order_of_the_request(self):
        asked = [self.reservation() for _ in range(3)]
        rows = self.reserve(*asked)
        self.assertEqual([item.volume_id for item in asked], [row["volume_id"] for row in rows])
        stored = attachment_sets.find(self.set_id)
        self.assertEqual([item.values["id"] for item in asked], stored["attachment_ids"])
        self.assertFalse(stored["undoing"])
        self.assertEqual({"reserved"}, {item["status"] for item in db_rows.list_volumes()})

    def test_reserve_with_a_volume_in_use_stores_nothing(self):
        used = db_rows.add_volume()["id"]
        other = db_rows.add_attachment(used, "attached")["id"]
        with self.assertRaisesRegex(exception.VolumeNotAvailable, used):
            self.reserve(self.reservation(), self.reservation(used))
        self.assertEqual([other], [row["id"] for row in db_rows.list_attachments()])
        self.assertIsNone(attachment_sets.find(self.set_id))

    def test_reserve_counts_the_whole_set_against_the_limit_of_the_host(self):
        with self.assertRaisesRegex(exception.HostLimitExceeded, "can take 3"):
            self.reserve(*(self.reservation() for _ in range(4)))
        self.assertEqual([], db_rows.list_attachments())

    def test_attachment_that_another_run_makes_and_removes_is_reserved_again(self):
        asked = self.reservation()
        duplicate = db_exception.DBDuplicateEntry()
        row = {"id": asked.values["id"]}
        with mock.patch.object(attachment_store, "reserve", side_effect=[duplicate, row]):
            self.assertEqual(row, attachment_sets.reserve_or_find(asked, may_be_free=True))
        with (
            mock.patch.object(attachment_store, "reserve", side_effect=duplicate),
            self.assertRaisesRegex(exception.Unavailable, "by other requests"),
        ):
            attachment_sets.reserve_or_find(asked, may_be_free=True)

    def test_complete_set_cannot_be_undone_and_an_undone_one_not_completed(self):
        self.reserve(self.reservation())
        self.assertTrue(attachment_sets.renew(self.set_id))
        self.assertTrue(attachment_sets.complete(self.set_id))
        self.assertFalse(attachment_sets.begin_undo(self.set_id))
        self.reserve(self.reservation())
        self.assertTrue(attachment_sets.begin_undo(self.set_id))
        self.assertFalse(attachment_sets.complete(self.set_id))
        self.assertFalse(attachment_sets.renew(self.set_id))
        attachment_sets.delete_undone(self.set_id)
        self.assertIsNone(attachment_sets.find(self.set_id))

    def test_expired_set_is_taken_over_once_unless_it_is_renewed(self):
        self.reserve(self.reservation())
        self.assertEqual([], attachment_sets.list_expired())
        expire(self.set_id)
        (row,) = attachment_sets.list_expired()
        attachment_sets.renew(self.set_id)
        self.assertFalse(attachment_sets.take_over(row))
        expire(self.set_id)
        (row,) = attachment_sets.list_expired()
        self.assertTrue(attachment_sets.take_over(row))
        self.assertFalse(attachment_sets.take_over(row))
        self.assertFalse(attachment_sets.complete(self.set_id))

    def test_reserve_or_find_returns_what_an_earlier_run_has_made(self):
        asked = self.reservation()
        row = attachment_sets.reserve_or_find(asked, may_be_free=True)
        again = attachment_sets.reserve_or_find(asked, may_be_free=True)
        self.assertEqual(row["id"], again["id"])
        with self.assertRaises(exception.VolumeNotAvailable):
            attachment_sets.reserve_or_find(self.reservation(asked.volume_id), may_be_free=False)

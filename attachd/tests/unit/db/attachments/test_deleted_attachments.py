# SPDX-License-Identifier: Apache-2.0
"""Deleted attachments are found by the events of their deletion."""

import datetime

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.agents import agent_transitions
from attachd.db.attachments import attachment_store, deleted_attachments
from attachd.db.engine import paging, session
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows

WHO = {"project_id": db_rows.PROJECT, "user_id": "u"}
MOMENT = datetime.datetime(2026, 1, 31, 12)  # noqa: DTZ001  as the tables store it


class Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]

    def delete(self, state="disconnecting", **values):
        attachment = db_rows.add_attachment(self.volume_id, state, **values)["id"]
        attachment_store.transition(attachment, self.volume_id, Event.REVOKED)
        return attachment

    def page(self, limit=10, marker=None, direction="desc", **filters):
        sort = (("created_at", direction),)
        page = paging.Page(limit=limit, marker=marker, sort=sort)
        return [item.id for item in deleted_attachments.page(filters, page)]


class DeletedAttachmentsTest(Case):
    def test_find_returns_attachment_as_it_was(self):
        values = {
            "user_id": "owner",
            "instance_uuid": models.new_id(),
            "mode": "ro",
            "mountpoint": "/dev/vdb",
            "attached_at": MOMENT,
            "created_at": MOMENT,
        }
        before = models.now()
        found = deleted_attachments.find(attachment_id := self.delete(**values))
        self.assertLessEqual(before, found.detached_at)
        expected = {
            "id": attachment_id,
            "project_id": db_rows.PROJECT,
            "volume_id": self.volume_id,
            "detached_at": found.detached_at,
            "host": db_rows.CONNECTOR["host"],
            "agent": None,
            "device": None,
            **values,
        }
        self.assertEqual(expected, found._asdict())

    def test_find_returns_device_that_agent_removed(self):
        values = {"agent": "compute-1", "generation": 3}
        attachment_id = db_rows.add_attachment(self.volume_id, "connected", **values)["id"]
        agent_transitions.complete(attachment_id, "compute-1", 3, "/dev/sdb")
        attachment_store.transition(attachment_id, self.volume_id, Event.WITHDRAW)
        agent_transitions.release(attachment_id, "compute-1", 3)
        attachment_store.transition(attachment_id, self.volume_id, Event.REVOKED)
        found = deleted_attachments.find(attachment_id)
        self.assertEqual(("compute-1", "/dev/sdb"), (found.agent, found.device))

    def test_find_unknown_or_existing_attachment_returns_none(self):
        self.assertIsNone(deleted_attachments.find(models.new_id()))
        existing = attachment_store.reserve(self.volume_id, WHO)["id"]
        self.assertIsNone(deleted_attachments.find(existing))

    def test_list_attached_returns_those_that_were_attached_at_any_time(self):
        ids = [db_rows.add_attachment(self.volume_id, "connected")["id"] for _ in range(3)]
        for attachment_id in ids[:2]:
            attachment_store.transition(attachment_id, self.volume_id, Event.COMPLETE)
        db_rows.remove_attachment(ids[0])
        self.assertEqual({*ids[:2]}, deleted_attachments.list_attached(ids))
        self.assertEqual(frozenset(), deleted_attachments.list_attached([]))

    def test_page_has_last_deleted_first(self):
        first, second, third = self.delete(), self.delete(), self.delete()
        self.assertEqual([third, second, first], self.page())
        self.assertEqual([first, second, third], self.page(direction="asc"))
        self.assertEqual([third], self.page(limit=1))
        self.assertEqual([second], self.page(limit=1, marker=third))
        self.assertEqual([first], self.page(marker=second))
        self.assertEqual([], self.page(marker=first))
        self.assertEqual(3, deleted_attachments.count({}))

    def test_page_filters_by_project_volume_and_time(self):
        other = self.delete(project_id="b" * 32)
        own = self.delete()
        self.assertEqual([own], self.page(project_id=db_rows.PROJECT))
        self.assertEqual([own, other], self.page(volume_id=self.volume_id))
        self.assertEqual([], self.page(volume_id=models.new_id()))
        since = paging.Comparison("created_at", "lt", MOMENT)
        self.assertEqual([], self.page(times=[since]))
        self.assertEqual(1, deleted_attachments.count({"project_id": db_rows.PROJECT}))

    def test_page_after_marker_of_other_project_raises_not_found(self):
        other = self.delete(project_id="b" * 32)
        for marker in (other, models.new_id()):
            with self.assertRaises(exception.MarkerNotFound):
                self.page(marker=marker, project_id=db_rows.PROJECT)

    def test_id_that_is_used_again_is_listed_once(self):
        attachment_id = attachment_store.reserve(self.volume_id, WHO)["id"]
        again = {**WHO, "id": attachment_id}
        attachment_store.transition(attachment_id, self.volume_id, Event.CANCEL)
        self.assertEqual([attachment_id], self.page())
        attachment_store.reserve(self.volume_id, again)
        self.assertEqual([], self.page())
        attachment_store.transition(attachment_id, self.volume_id, Event.CANCEL)
        self.assertEqual([attachment_id], self.page())
        self.assertEqual([], self.page(marker=attachment_id))

    def test_deletion_of_hold_or_connection_is_not_listed(self):
        self.delete(kind="connection")
        self.assertEqual([], self.page())

    def test_event_of_an_older_release_is_shown_without_what_it_lacks(self):
        attachment_id = self.delete()
        with session.writer() as connection:
            connection.execute(sa.update(models.events).values(details={}))
        found = deleted_attachments.find(attachment_id)
        self.assertEqual((None, None, None), (found.host, found.mode, found.created_at))


class OnMariadb(DeletedAttachmentsTest):
    kind = "mariadb"


class OnPostgresql(DeletedAttachmentsTest):
    kind = "postgresql"


del Case

# SPDX-License-Identifier: Apache-2.0
"""Messages to users: stored, listed and purged."""

import datetime

import sqlalchemy as sa

from attachd import exception
from attachd.db import messages, models
from attachd.db.engine import session
from attachd.db.engine.paging import Page
from attachd.tests.fixtures import databases, db_rows


class MessagesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = models.new_id()

    def create(self, project=db_rows.PROJECT, kept_for=60, **values):
        news = messages.NewMessage(
            **{
                "volume_id": self.volume,
                "project_id": project,
                "action": messages.CREATE,
                "detail": messages.NOT_CREATED,
                "request_id": "req-1",
                **values,
            }
        )
        messages.create(news, kept_for)
        return self.all()[0]

    def all(self, **filters):
        return messages.page(filters, Page(limit=9))

    def test_create_stores_action_and_detail(self):
        row = self.create()
        self.assertEqual(row, messages.get(row["id"], db_rows.PROJECT))
        self.assertEqual(row, messages.get(row["id"], None))
        kept = {key: row[key] for key in ("resource_type", "resource_uuid", "event_id")}
        expected = {
            "resource_type": "VOLUME",
            "resource_uuid": self.volume,
            "event_id": "VOLUME_VOLUME_008_012",
        }
        self.assertEqual(expected, kept)
        self.assertEqual(("req-1", "ERROR"), (row["request_id"], row["message_level"]))
        self.assertEqual(row["created_at"] + datetime.timedelta(seconds=60), row["expires_at"])

    def test_page_with_filter_returns_matches_newest_first(self):
        first = self.create(request_id="req-0")["id"]
        other = self.create(volume_id=models.new_id(), action=messages.EXTEND)["id"]
        strange = self.create(project="b" * 32)["id"]
        for filters, expected in (
            ({}, [strange, other, first]),
            ({"project_id": db_rows.PROJECT}, [other, first]),
            ({"resource_uuid": self.volume}, [strange, first]),
            ({"request_id": "req-0"}, [first]),
            ({"event_id": "VOLUME_VOLUME_007_012"}, [other]),
            ({"message_level": "INFO"}, []),
            ({"resource_type": "VOLUME", "project_id": "b" * 32}, [strange]),
        ):
            with self.subTest(filters):
                self.assertEqual(expected, [row["id"] for row in self.all(**filters)])

    def test_page_sorts_by_each_key(self):
        for _ in range(3):
            self.create()
        for key in messages.SORTABLE:
            found = messages.page({}, Page(limit=9, sort=((key, "asc"),)))
            self.assertEqual(3, len(found), key)

    def test_get_of_other_project_raises_not_found(self):
        row = self.create()
        with self.assertRaises(exception.MessageNotFound):
            messages.get(row["id"], "b" * 32)

    def test_delete_twice_raises_not_found(self):
        row = self.create()
        messages.delete(row["id"])
        self.assertEqual([], self.all())
        with self.assertRaises(exception.MessageNotFound):
            messages.delete(row["id"])

    def test_purge_removes_expired_messages(self):
        old = self.create()["id"]
        young = self.create()["id"]
        past = models.now() - datetime.timedelta(seconds=1)
        with session.writer() as connection:
            attachment = models.messages.c.id == old
            connection.execute(
                sa.update(models.messages).where(attachment).values(expires_at=past)
            )
        self.assertEqual(1, messages.purge(9))
        self.assertEqual([young], [row["id"] for row in self.all()])
        self.assertEqual(0, messages.purge(9))

    def test_each_failure_names_action_for_user(self):
        for number, words in messages.DETAILS.items():
            if number not in {messages.UNKNOWN, messages.FORCED}:
                self.assertRegex(words, r"\. (Try|Have|Delete|Update|Create|Unmanage) ", number)

    def test_each_number_has_description_and_three_digits(self):
        for table in (messages.ACTIONS, messages.DETAILS):
            for number, words in table.items():
                self.assertRegex(number, r"^\d{3}$")
                self.assertTrue(words)

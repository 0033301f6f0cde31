# SPDX-License-Identifier: Apache-2.0
"""Sealed columns, by what the database really has."""

import unittest
from unittest import mock

from attachd import exception
from attachd.db import attachment_queries, attachments, paging, sealing
from attachd.db.sealing import opened
from attachd.tests import databases, keys, rows

INFO = {"driver_volume_type": "iscsi", "data": {"auth_password": "é" * 8}}
SECRET = "s" * 64
COLUMNS = ("connection_info", "secret")


class SealedTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.file = keys.use(self)

    def add(self):
        volume = rows.add_volume()["id"]
        return rows.add_attachment(volume, "attached", connection_info=INFO, secret=SECRET)["id"]

    def read(self, attachment):
        row = rows.attachment(attachment)
        return tuple(opened(row[name]) for name in COLUMNS)

    def test_what_is_stored_is_sealed_and_read_as_it_was(self):
        attachment = self.add()
        for column in COLUMNS:
            (stored,) = keys.stored(column)
            self.assertTrue(stored.startswith("sealed:1:"), stored)
        self.assertEqual((INFO, SECRET), self.read(attachment))

    def test_null_stays_null(self):
        volume = rows.add_volume()["id"]
        attachment = rows.add_attachment(volume, connection_info=None, secret=None)["id"]
        self.assertEqual([[None], [None]], [keys.stored(column) for column in COLUMNS])
        self.assertEqual((None, None), self.read(attachment))

    def test_what_was_stored_without_keys_is_read_as_it_is(self):
        keys.configure(self, None)
        attachment = self.add()
        self.assertEqual([SECRET], keys.stored("secret"))
        keys.configure(self, self.file)
        row = rows.attachment(attachment)
        self.assertEqual((INFO, SECRET), tuple(row[name] for name in COLUMNS))

    def test_what_was_read_is_stored_again_without_being_opened(self):
        attachment = self.add()
        before = [keys.stored(column) for column in COLUMNS]
        row = rows.attachment(attachment)
        keys.lose(self.file)
        rows.change_attachment(attachment, **{name: row[name] for name in COLUMNS})
        self.assertEqual(before, [keys.stored(column) for column in COLUMNS])

    def test_a_row_can_be_read_and_changed_whose_key_is_lost(self):
        lost = self.add()
        keys.lose(self.file)
        kept = self.add()
        rows.change_attachment(lost, error="e")
        row = attachments.get(lost, None)
        self.assertEqual("e", row["error"])
        with self.assertRaises(exception.SecretUnreadable):
            opened(row["connection_info"])
        self.assertEqual((INFO, SECRET), self.read(kept))

    def test_lists_open_nothing(self):
        self.add()
        page = paging.Page(10, None, 0, (("created_at", "desc"),))
        with mock.patch.object(sealing, "unseal") as unseal:
            for each in (attachment_queries.page, attachment_queries.page_in_full):
                self.assertEqual(1, len(each({}, page)))
        unseal.assert_not_called()

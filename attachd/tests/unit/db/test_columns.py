# SPDX-License-Identifier: Apache-2.0
"""Column types."""

from unittest import mock

from attachd import exception
from attachd.db import models
from attachd.db.attachments import attachment_queries, attachment_store
from attachd.db.engine import paging, session
from attachd.db.secrets import encryption
from attachd.db.secrets.encryption import decrypted
from attachd.tests.fixtures import databases, db_rows, key_files


class PlainTest(databases.DatabaseCase):
    def test_json_is_read_as_stored(self):
        deep = []
        for _ in range(200):
            deep = [deep]
        values = [
            {},
            {"é": "日本語 🗻"},
            {"nul": "\0", "half a pair": "\ud800"},
            {"big": 2**70, "small": 1e-300, "not": None, "yes": True},
            {"deep": deep},
            {"long": "x" * 100_000},
        ]
        volume = db_rows.add_volume()
        for value in values:
            db_rows.change_volume(volume["id"], provider=value)
            self.assertEqual(value, db_rows.get_volume(volume["id"])["provider"])

    def test_json_none_is_null(self):
        attachment = db_rows.add_attachment(db_rows.add_volume()["id"], connector=None)
        self.assertIsNone(db_rows.get_attachment(attachment["id"])["connector"])
        with session.reader() as connection:
            stored = connection.exec_driver_sql("SELECT connector FROM attachments").scalar()
        self.assertIsNone(stored)

    def test_moment_keeps_microseconds(self):
        moment = models.now().replace(microsecond=123_457)
        volume = db_rows.add_volume(launched_at=moment)
        self.assertEqual(moment, db_rows.get_volume(volume["id"])["launched_at"])

    def test_string_keeps_every_character(self):
        for name in ("🗻", "Ünïcödé", "a\nb", "'\";--%_\\"):
            volume = db_rows.add_volume(name=name)
            self.assertEqual(name, db_rows.get_volume(volume["id"])["name"])


INFO = {"driver_volume_type": "iscsi", "data": {"auth_password": "é" * 8}}
SECRET = "s" * 64
COLUMNS = ("connection_info", "secret")


class EncryptedTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.file = key_files.use(self)

    def add(self):
        volume = db_rows.add_volume()["id"]
        return db_rows.add_attachment(volume, "attached", connection_info=INFO, secret=SECRET)[
            "id"
        ]

    def read(self, attachment):
        row = db_rows.get_attachment(attachment)
        return tuple(decrypted(row, name) for name in COLUMNS)

    def test_encrypted_column_is_stored_encrypted_and_read_back(self):
        attachment = self.add()
        for column in COLUMNS:
            (stored,) = key_files.stored_column(column)
            self.assertTrue(stored.startswith("encrypted:2:"), stored)
        self.assertEqual((INFO, SECRET), self.read(attachment))

    def test_encrypted_column_keeps_null(self):
        volume = db_rows.add_volume()["id"]
        attachment = db_rows.add_attachment(volume, connection_info=None, secret=None)["id"]
        self.assertEqual([[None], [None]], [key_files.stored_column(column) for column in COLUMNS])
        self.assertEqual((None, None), self.read(attachment))

    def test_encrypted_column_reads_plain_text(self):
        key_files.configure(self, None)
        attachment = self.add()
        self.assertEqual([SECRET], key_files.stored_column("secret"))
        key_files.configure(self, self.file)
        row = db_rows.get_attachment(attachment)
        self.assertEqual((INFO, SECRET), tuple(row[name] for name in COLUMNS))

    def test_encrypted_value_is_stored_again_without_decryption(self):
        attachment = self.add()
        before = [key_files.stored_column(column) for column in COLUMNS]
        row = db_rows.get_attachment(attachment)
        key_files.replace_all_keys(self.file)
        db_rows.change_attachment(attachment, **{name: row[name] for name in COLUMNS})
        self.assertEqual(before, [key_files.stored_column(column) for column in COLUMNS])

    def test_row_with_lost_key_can_be_read_and_changed(self):
        lost = self.add()
        key_files.replace_all_keys(self.file)
        kept = self.add()
        db_rows.change_attachment(lost, error="e")
        row = attachment_store.get(lost, None)
        self.assertEqual("e", row["error"])
        with self.assertRaises(exception.SecretUnreadable):
            decrypted(row, "connection_info")
        self.assertEqual((INFO, SECRET), self.read(kept))

    def test_lists_decrypt_nothing(self):
        self.add()
        page = paging.Page(10, None, 0, (("created_at", "desc"),))
        with mock.patch.object(encryption, "decrypt") as decrypt:
            for item in (attachment_queries.page, attachment_queries.page_with_secrets):
                self.assertEqual(1, len(item({}, page)))
        decrypt.assert_not_called()

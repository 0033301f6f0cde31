# SPDX-License-Identifier: Apache-2.0
"""What the tables have in common."""

import unittest
from unittest import mock

from attachd import exception
from attachd.db import models
from attachd.db.attachments import queries as attachment_queries
from attachd.db.attachments import store as attachments
from attachd.db.engine import paging, session
from attachd.db.secrets import encryption
from attachd.db.secrets.encryption import decrypted
from attachd.tests.fixtures import databases, db_rows, key_files


class ColumnsTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def test_any_json_is_read_as_it_was_stored(self):
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

    def test_no_json_is_null(self):
        attachment = db_rows.add_attachment(db_rows.add_volume()["id"], connector=None)
        self.assertIsNone(db_rows.get_attachment(attachment["id"])["connector"])
        with session.reader() as connection:
            stored = connection.exec_driver_sql("SELECT connector FROM attachments").scalar()
        self.assertIsNone(stored)

    def test_moments_are_kept_to_the_microsecond(self):
        moment = models.now().replace(microsecond=123_457)
        volume = db_rows.add_volume(launched_at=moment)
        self.assertEqual(moment, db_rows.get_volume(volume["id"])["launched_at"])

    def test_names_hold_every_character(self):
        for name in ("🗻", "Ünïcödé", "a\nb", "'\";--%_\\"):
            volume = db_rows.add_volume(name=name)
            self.assertEqual(name, db_rows.get_volume(volume["id"])["name"])

    def test_the_volumes_of_a_backend_are_those_of_all_its_pools_and_no_other(self):
        own = {db_rows.add_volume(host=host)["id"] for host in ("h@b", "h@b#", "h@b#p", "h@b#q")}
        for host in ("h@bc", "h@b2#p", "H@b#p", "h@B", "xh@b#p", None, "h@", "h_b#p"):
            db_rows.add_volume(host=host)
        with session.reader() as connection:
            served = models.volumes.select().where(models.on_backend("h@b"))
            self.assertEqual(own, {row.id for row in connection.execute(served)})


class ValuesTest(unittest.TestCase):
    def test_an_error_is_cut_to_what_its_column_holds(self):
        self.assertEqual(1023, len(models.truncate_error("é" * 2000)))
        self.assertEqual("short", models.truncate_error("short"))
        self.assertIsNone(models.truncate_error(None))

    def test_ids_differ(self):
        self.assertNotEqual(models.new_id(), models.new_id())

    def test_every_index_fits_into_innodb(self):
        for table in models.METADATA.tables.values():
            for index in table.indexes:
                sizes = [getattr(column.type, "length", None) or 2 for column in index.columns]
                self.assertLessEqual(4 * sum(sizes), 3072, index.name)


INFO = {"driver_volume_type": "iscsi", "data": {"auth_password": "é" * 8}}
SECRET = "s" * 64
COLUMNS = ("connection_info", "secret")


class SealedTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.file = key_files.use(self)

    def add(self):
        volume = db_rows.add_volume()["id"]
        return db_rows.add_attachment(volume, "attached", connection_info=INFO, secret=SECRET)[
            "id"
        ]

    def read(self, attachment):
        row = db_rows.get_attachment(attachment)
        return tuple(decrypted(row[name]) for name in COLUMNS)

    def test_what_is_stored_is_sealed_and_read_as_it_was(self):
        attachment = self.add()
        for column in COLUMNS:
            (stored,) = key_files.stored_column(column)
            self.assertTrue(stored.startswith("encrypted:1:"), stored)
        self.assertEqual((INFO, SECRET), self.read(attachment))

    def test_null_stays_null(self):
        volume = db_rows.add_volume()["id"]
        attachment = db_rows.add_attachment(volume, connection_info=None, secret=None)["id"]
        self.assertEqual([[None], [None]], [key_files.stored_column(column) for column in COLUMNS])
        self.assertEqual((None, None), self.read(attachment))

    def test_what_was_stored_without_keys_is_read_as_it_is(self):
        key_files.configure(self, None)
        attachment = self.add()
        self.assertEqual([SECRET], key_files.stored_column("secret"))
        key_files.configure(self, self.file)
        row = db_rows.get_attachment(attachment)
        self.assertEqual((INFO, SECRET), tuple(row[name] for name in COLUMNS))

    def test_what_was_read_is_stored_again_without_being_opened(self):
        attachment = self.add()
        before = [key_files.stored_column(column) for column in COLUMNS]
        row = db_rows.get_attachment(attachment)
        key_files.replace_all_keys(self.file)
        db_rows.change_attachment(attachment, **{name: row[name] for name in COLUMNS})
        self.assertEqual(before, [key_files.stored_column(column) for column in COLUMNS])

    def test_a_row_can_be_read_and_changed_whose_key_is_lost(self):
        lost = self.add()
        key_files.replace_all_keys(self.file)
        kept = self.add()
        db_rows.change_attachment(lost, error="e")
        row = attachments.get(lost, None)
        self.assertEqual("e", row["error"])
        with self.assertRaises(exception.SecretUnreadable):
            decrypted(row["connection_info"])
        self.assertEqual((INFO, SECRET), self.read(kept))

    def test_lists_open_nothing(self):
        self.add()
        page = paging.Page(10, None, 0, (("created_at", "desc"),))
        with mock.patch.object(encryption, "decrypt") as unseal:
            for each in (attachment_queries.page, attachment_queries.page_with_secrets):
                self.assertEqual(1, len(each({}, page)))
        unseal.assert_not_called()


class TablesTest(unittest.TestCase):
    def test_each_has_a_primary_key(self):
        for table in models.METADATA.tables.values():
            with self.subTest(table.name):
                self.assertTrue(table.primary_key.columns)

    def test_strings_differ_by_case_in_mariadb_as_elsewhere(self):
        for table in models.METADATA.tables.values():
            with self.subTest(table.name):
                self.assertEqual("utf8mb4_bin", table.dialect_options["mysql"]["collate"])


class BackendTest(unittest.TestCase):
    def test_is_what_stands_before_the_pool(self):
        self.assertEqual("host@backend", models.backend_of("host@backend#pool"))
        self.assertEqual("host@backend", models.backend_of("host@backend"))

    def test_of_nowhere_is_none(self):
        self.assertIsNone(models.backend_of(None))

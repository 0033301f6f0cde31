# SPDX-License-Identifier: Apache-2.0
"""Tables and values of rows."""

import unittest

from attachd.db import models
from attachd.db.engine import session
from attachd.tests.fixtures import databases, db_rows


class BackendTest(databases.DatabaseCase):
    def test_on_backend_matches_all_pools_of_backend_only(self):
        own = {db_rows.add_volume(host=host)["id"] for host in ("h@b", "h@b#", "h@b#p", "h@b#q")}
        for host in ("h@bc", "h@b2#p", "H@b#p", "h@B", "xh@b#p", None, "h@", "h_b#p"):
            db_rows.add_volume(host=host)
        with session.reader() as connection:
            served = models.volumes.select().where(models.on_backend("h@b"))
            self.assertEqual(own, {row.id for row in connection.execute(served)})


class ValuesTest(unittest.TestCase):
    def test_truncate_error_cuts_to_column_length(self):
        self.assertEqual(1023, len(models.truncate_error("é" * 2000)))
        self.assertEqual("short", models.truncate_error("short"))
        self.assertIsNone(models.truncate_error(None))

    def test_truncate_error_with_control_characters_returns_one_printable_line(self):
        shown = models.truncate_error("\x1b[2J busy:\r\n\tpid 7\u202e \udcff é")
        self.assertEqual("\\x1b[2J busy: pid 7\\u202e \\udcff é", shown)

    def test_new_id_differs(self):
        self.assertNotEqual(models.new_id(), models.new_id())

    def test_indexes_fit_innodb(self):
        for table in models.METADATA.tables.values():
            for index in table.indexes:
                sizes = [getattr(column.type, "length", None) or 2 for column in index.columns]
                self.assertLessEqual(4 * sum(sizes), 3072, index.name)


class TablesTest(unittest.TestCase):
    def test_each_table_has_primary_key(self):
        for table in models.METADATA.tables.values():
            with self.subTest(table.name):
                self.assertTrue(table.primary_key.columns)

    def test_mariadb_strings_are_case_sensitive(self):
        for table in models.METADATA.tables.values():
            with self.subTest(table.name):
                self.assertEqual("utf8mb4_bin", table.dialect_options["mysql"]["collate"])


class BackendOfTest(unittest.TestCase):
    def test_backend_of_cuts_pool(self):
        self.assertEqual("host@backend", models.backend_of("host@backend#pool"))
        self.assertEqual("host@backend", models.backend_of("host@backend"))

    def test_backend_of_none_is_none(self):
        self.assertIsNone(models.backend_of(None))

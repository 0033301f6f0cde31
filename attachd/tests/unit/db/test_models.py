# SPDX-License-Identifier: Apache-2.0
"""What the tables have in common."""

import unittest

from attachd.db import models


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

# SPDX-License-Identifier: Apache-2.0
"""What the columns can hold."""

import unittest

from attachd.db import api, models
from attachd.tests import databases, rows


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
        volume = rows.add_volume()
        for value in values:
            rows.change_volume(volume["id"], provider=value)
            self.assertEqual(value, rows.volume(volume["id"])["provider"])

    def test_no_json_is_null(self):
        attachment = rows.add_attachment(rows.add_volume()["id"], connector=None)
        self.assertIsNone(rows.attachment(attachment["id"])["connector"])
        with api.reader() as connection:
            stored = connection.exec_driver_sql("SELECT connector FROM attachments").scalar()
        self.assertIsNone(stored)

    def test_moments_are_kept_to_the_microsecond(self):
        moment = models.now().replace(microsecond=123_457)
        volume = rows.add_volume(launched_at=moment)
        self.assertEqual(moment, rows.volume(volume["id"])["launched_at"])

    def test_names_hold_every_character(self):
        for name in ("🗻", "Ünïcödé", "a\nb", "'\";--%_\\"):
            volume = rows.add_volume(name=name)
            self.assertEqual(name, rows.volume(volume["id"])["name"])

    def test_the_volumes_of_a_backend_are_those_of_all_its_pools_and_no_other(self):
        own = {rows.add_volume(host=host)["id"] for host in ("h@b", "h@b#", "h@b#p", "h@b#q")}
        for host in ("h@bc", "h@b2#p", "H@b#p", "h@B", "xh@b#p", None, "h@", "h_b#p"):
            rows.add_volume(host=host)
        with api.reader() as connection:
            served = models.volumes.select().where(models.served_by("h@b"))
            self.assertEqual(own, {row.id for row in connection.execute(served)})


class ValuesTest(unittest.TestCase):
    def test_an_error_is_cut_to_what_its_column_holds(self):
        self.assertEqual(1023, len(models.shortened("é" * 2000)))
        self.assertEqual("short", models.shortened("short"))
        self.assertIsNone(models.shortened(None))

    def test_ids_differ(self):
        self.assertNotEqual(models.new_id(), models.new_id())

    def test_every_index_fits_into_innodb(self):
        for table in models.METADATA.tables.values():
            for index in table.indexes:
                sizes = [getattr(column.type, "length", None) or 2 for column in index.columns]
                self.assertLessEqual(4 * sum(sizes), 3072, index.name)

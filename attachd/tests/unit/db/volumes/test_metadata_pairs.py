# SPDX-License-Identifier: Apache-2.0
"""Limits of pairs, and keys that a database takes as equal, in each table and by each request."""

import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.volumes import metadata_pairs, snapshot_store, volume_store
from attachd.tests.fixtures import databases, db_rows

_EQUAL = {"a": "1", "a ": "2"}


class InsertTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)
        self.volume = db_rows.add_volume("ready")["id"]

    def test_no_pairs_are_nothing(self):
        with session.writer() as connection:
            metadata_pairs.insert(connection, models.volume_metadata, {}, {})

    def test_pair_that_is_there_is_refused_as_equal_key(self):
        owner = {"volume_id": self.volume}
        for table in (models.volume_metadata, models.volume_image_metadata):
            with session.writer() as connection:
                metadata_pairs.insert(connection, table, owner, {"a": "1"})
            with (
                self.assertRaisesRegex(exception.BadRequest, "differ only in blanks"),
                session.writer() as connection,
            ):
                metadata_pairs.insert(connection, table, owner, {"a": "2"})


class MariaTest(unittest.TestCase):
    """Requests on MariaDB, which compares keys without the blanks at their ends."""

    def setUp(self):
        super().setUp()
        databases.use(self, "mariadb")

    def test_new_volume_and_snapshot_with_equal_keys_are_refused(self):
        volume = db_rows.add_volume("ready")["id"]
        values = {"project_id": "p", "size_gib": 1, "host": "a@b#c"}
        for pairs, of_image in ((_EQUAL, {}), ({}, _EQUAL)):
            with self.assertRaisesRegex(exception.BadRequest, "differ only in blanks"):
                volume_store.create({**values, "image_metadata": of_image}, pairs)
        values = {"volume_id": volume, "project_id": db_rows.PROJECT, "metadata": _EQUAL}
        with self.assertRaisesRegex(exception.BadRequest, "differ only in blanks"):
            snapshot_store.create(values, ("available",))
        with session.reader() as connection:
            count = sa.select(sa.func.count()).select_from(models.volumes)
            self.assertEqual(1, connection.execute(count).scalar())


class LimitsTest(unittest.TestCase):
    def test_as_many_keys_and_bytes_as_allowed_pass(self):
        metadata_pairs.check("x", {})
        metadata_pairs.check("x", {f"{n}": "" for n in range(metadata_pairs.MAX_PAIRS)})
        metadata_pairs.check("x", {"a": "b" * (metadata_pairs.MAX_BYTES - 1)})

    def test_more_keys_are_refused(self):
        more = {f"{number}": "" for number in range(metadata_pairs.MAX_PAIRS + 1)}
        with self.assertRaisesRegex(
            exception.BadRequest, "Volume 1 would have 257 .* may have 256"
        ):
            metadata_pairs.check("Volume 1", more)

    def test_more_bytes_are_refused_as_utf_8_counts_them(self):
        characters = metadata_pairs.MAX_BYTES // 2
        with self.assertRaisesRegex(exception.BadRequest, r"Volume 1 would have 1048577 bytes"):
            metadata_pairs.check(
                "Volume 1", {"a": "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * characters}
            )

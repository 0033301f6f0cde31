# SPDX-License-Identifier: Apache-2.0
"""Prepared statements do what others do; on every database by functional/test_databases.py."""

import datetime
import inspect
import unittest

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from attachd import exception
from attachd.db import api, events, leases, models, volume_statements, volumes
from attachd.db import attachment_statements as statements
from attachd.db.prepared import Prepared
from attachd.tests import databases, rows

V = models.volumes
A = models.attachments
RENAME = Prepared(sa.update(V).where(V.c.id == sa.bindparam("the_id")))
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001  as tables store it
LATER = {"updated_at": MOMENT}
EVERYTHING = {
    "volume_id": None,
    "project_id": "p",
    "user_id": 'ü"\\%s:x',
    "instance_uuid": models.new_id(),
    "kind": "attachment",
    "state": "connected",
    "connector": {"host": "h", "deep": [1, None, {"a": "ß\0"}]},
    "connection_info": {"data": {"auth_password": "s"}},
    "secret": "5" * 32,
    "generation": 7,
    "attached_at": MOMENT,
    "created_at": MOMENT,
}


def every_prepared():
    """All prepared statements that there are, by name."""
    found = {}
    for module in (statements, events, leases, volume_statements):
        for name, value in vars(module).items():
            each = value if name.startswith("SWAP") else {name: value}
            found |= {
                f"{module.__name__}.{name}.{key}": one
                for key, one in each.items()
                if isinstance(one, Prepared)
            }
    return found


class PreparedTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        self.volume = rows.add_volume(provider={"a": [1]}, multiattach=True)["id"]
        self.the = {"the_id": self.volume}

    def insert(self, **values):
        row = {**EVERYTHING, "id": models.new_id(), "volume_id": self.volume, **values}
        with api.writer() as connection:
            self.assertEqual(1, statements.INSERT.run(connection, row))
        return row

    def ordinarily(self, statement, values, lend=api.reader):
        with lend() as connection:
            return [dict(row._mapping) for row in connection.execute(statement, values)]

    def test_rows_are_read_as_sqlalchemy_reads_them(self):
        attachment = self.insert()["id"]
        self.insert(connector=None, connection_info=None, secret=None, attached_at=None)
        one = {"the_id": attachment}
        for prepared, values in (
            (statements.GET, one),
            (statements.GET_IN_PROJECT, {**one, "the_project": "p"}),
            (statements.GET_IN_PROJECT, {**one, "the_project": "other"}),
            (statements.OF_VOLUME, self.the),
            (statements.LOCK_VOLUME, self.the),
            (statements.LOCK_VOLUME_TO_JOIN, self.the),
            (statements.LOCK_VOLUME_TO_CONNECT, self.the),
            (volume_statements.GET, self.the),
            (volume_statements.GET_IN_PROJECT, {**self.the, "the_project": rows.PROJECT}),
        ):
            expected = self.ordinarily(prepared.statement, values, api.writer)
            with api.writer() as connection:
                self.assertEqual(expected, prepared.rows(connection, values))
                first = prepared.row(connection, values)
            self.assertEqual(expected[0] if expected else None, first)

    def test_every_value_is_stored_as_it_is(self):
        row = self.insert()
        (stored,) = self.ordinarily(sa.select(A).where(A.c.id == row["id"]), {})
        self.assertEqual(row, {name: stored[name] for name in row})
        empty = {stored[name] for name in stored.keys() - row.keys()}
        self.assertEqual({None}, empty)

    def test_rows_are_counted_that_it_is_about(self):
        with api.writer() as connection:
            for _ in range(2):  # the second time, nothing changes
                values = {**self.the, "name": "x", **LATER}
                self.assertEqual(1, RENAME.run(connection, values))
            self.assertEqual(0, RENAME.run(connection, {**values, "the_id": "none"}))
        self.assertEqual("x", rows.volume(self.volume)["name"])

    def test_it_belongs_to_the_transaction(self):
        with self.assertRaises(LookupError), api.writer() as connection:
            RENAME.run(connection, {**self.the, "name": "x", **LATER})
            (seen,) = volume_statements.GET.rows(connection, self.the)
            raise LookupError
        self.assertEqual("x", seen["name"])
        self.assertIsNone(rows.volume(self.volume)["name"])

    def test_an_error_is_what_it_is_otherwise(self):
        row = self.insert()
        for kind, values in (
            (db_exception.DBDuplicateEntry, row),
            (db_exception.DBReferenceError, {**row, "id": "x", "volume_id": "none"}),
        ):
            raised = []
            for execute in (
                lambda connection, values=values: statements.INSERT.run(connection, values),
                lambda connection, values=values: connection.execute(sa.insert(A), values),
            ):
                with self.assertRaises(kind) as caught, api.writer() as connection:
                    execute(connection)
                raised.append(caught.exception)
            self.assertEqual(type(raised[1]), type(raised[0]))
            inner = [each.inner_exception for each in raised]
            self.assertEqual(type(inner[1]), type(inner[0]))
        self.assertEqual(1, len(self.ordinarily(sa.select(A), {})))

    def test_a_value_that_is_no_text_is_refused_as_it_is_otherwise(self):
        raised = []
        for execute in (
            lambda connection: RENAME.run(connection, {**self.the, "name": "\ud800", **LATER}),
            lambda connection: connection.execute(sa.update(V).values(name="\ud800")),
        ):
            with self.assertRaises(exception.BadRequest) as caught:
                self.in_a_transaction(execute)
            raised.append(str(caught.exception))
        self.assertEqual(raised[1], raised[0])

    @staticmethod
    @api.retried
    def in_a_transaction(execute):
        with api.writer() as connection:
            execute(connection)

    def test_what_is_in_a_statement_is_in_no_error(self):
        wrong = Prepared(sa.select(sa.column("nonesuch")).where(V.c.name == sa.bindparam("x")))
        with self.assertRaises(Exception) as caught, api.reader() as connection:
            wrong.rows(connection, {"x": "s3cret"})
        self.assertIn("nonesuch", str(caught.exception))
        self.assertNotIn("s3cret", str(caught.exception))

    def test_one_that_is_interrupted_leaves_no_connection_behind_that_others_would_get(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        self.listen(interrupt)
        with api.reader() as connection:
            self.assertRaises(KeyboardInterrupt, volume_statements.GET.rows, connection, self.the)
            self.assertTrue(connection.invalidated)
        sa.event.remove(api._engines().reader, "before_cursor_execute", interrupt)
        self.assertEqual(self.volume, volumes.get(self.volume, None)["id"])

    def listen(self, function):
        sa.event.listen(api._engines().reader, "before_cursor_execute", function)

    def test_who_listens_to_statements_hears_it(self):
        heard = []
        self.listen(lambda *heard_: heard.append(heard_))
        with api.reader() as connection:
            volume_statements.GET.rows(connection, self.the)
        ((_, _, sql, parameters, *_),) = heard
        self.assertIn("SELECT volumes.id", sql)
        self.assertIn(self.volume, str(parameters))

    def test_it_is_counted(self):
        before = api.counters().statements
        volumes.get(self.volume, None)
        self.assertEqual(before + 1, api.counters().statements)


class CompileTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")
        self.volume = rows.add_volume()["id"]

    def test_a_value_that_is_missing_is_named(self):
        with api.reader() as connection, self.assertRaisesRegex(ValueError, "value for the_id"):
            volume_statements.GET.rows(connection, {})

    def test_no_default_is_left_out_in_silence(self):
        with api.writer() as connection, self.assertRaisesRegex(ValueError, "updated_at"):
            RENAME.run(connection, {"the_id": self.volume, "name": "x"})

    def test_a_list_of_values_cannot_be_prepared(self):
        several = Prepared(sa.select(V.c.id).where(V.c.id.in_([self.volume])))
        with api.reader() as connection, self.assertRaisesRegex(ValueError, "cannot be prepared"):
            several.rows(connection, {})

    def test_each_set_of_names_is_compiled_once(self):
        statement = Prepared(sa.select(V.c.id).where(V.c.id == sa.bindparam("the_id")))
        compiled = []

        def compile_(*args, **kwargs):
            compiled.append(args)
            return type(statement.statement).compile(statement.statement, *args, **kwargs)

        statement.statement.compile = compile_
        for _ in range(3):
            with api.reader() as connection:
                statement.rows(connection, {"the_id": self.volume})
        self.assertEqual(1, len(compiled))

    def test_every_one_says_on_each_database_what_sqlalchemy_says(self):
        found = every_prepared()
        self.assertLess(20, len(found))
        for name, each in found.items():
            for dialect in (sqlite.dialect(), mysql.dialect(), postgresql.dialect()):
                text = str(each.statement.compile(dialect=dialect))
                self.assertNotIn("POSTCOMPILE", text, name)

    def test_sqlalchemy_explains_errors_by_that_name(self):
        names = list(inspect.signature(sa.Connection._handle_dbapi_exception).parameters)
        self.assertEqual(["self", "e", "statement", "parameters", "cursor", "context"], names[:6])

# SPDX-License-Identifier: Apache-2.0
"""Compiled statements behave as SQLAlchemy's; functional/test_databases.py repeats this on
servers.
"""

import contextlib
import datetime
import sqlite3
import unittest

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy.sql import visitors as sa_visitors

from attachd import exception
from attachd.db import models
from attachd.db.attachments import events, statements
from attachd.db.cluster import volume_leases
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledSelect, CompiledStatement
from attachd.db.engine.retry import retried
from attachd.db.secrets import encryption
from attachd.db.volumes import volume_store
from attachd.tests.fixtures import databases, db_rows

V = models.volumes
A = models.attachments
RENAME = CompiledStatement(sa.update(V).where(V.c.id == sa.bindparam("match_id")))
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
    for module in (statements, events, volume_leases, volume_store):
        for name, value in vars(module).items():
            item = value if name.startswith("SWAP") else {name: value}
            found |= {
                f"{module.__name__}.{name}.{key}": one
                for key, one in item.items()
                if isinstance(one, CompiledStatement)
            }
    return found


def some_values(name, statement):
    """Values that a statement can be executed with, to no effect but that of a new row."""
    if isinstance(statement, sa.Insert):
        if statement.table is A:
            row = {**EVERYTHING, "id": models.new_id(), "volume_id": db_rows.add_volume()["id"]}
            return encryption.bind(row, row["id"])
        names = ("project_id", "volume_id", "attachment_id", "type")
        return {**dict.fromkeys(names, "x"), "created_at": MOMENT, "details": {}}
    bound = {item.key: item.type for item in sa_visitors.iterate(statement) if is_asked(item)}
    values = {name: SAMPLES[type_.python_type] for name, type_ in bound.items()}
    if isinstance(statement, sa.Update) and "leases" not in name:
        values |= LATER
    return values


def is_asked(element):
    return isinstance(element, sa.BindParameter) and element.required


SAMPLES = {str: "x", int: 1, datetime.datetime: MOMENT}


class CompiledStatementTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(provider={"a": [1]}, multiattach=True)["id"]
        self.params = {"match_id": self.volume}

    def insert(self, **values):
        row = {**EVERYTHING, "id": models.new_id(), "volume_id": self.volume, **values}
        with session.writer() as connection:
            bound = encryption.bind(row, row["id"])
            self.assertEqual(1, statements.INSERT.execute(connection, bound))
        return row

    def ordinarily(self, statement, values, lend=session.reader):
        with lend() as connection:
            return [dict(row._mapping) for row in connection.execute(statement, values)]

    def test_fetch_reads_rows_as_sqlalchemy(self):
        attachment = self.insert()["id"]
        self.insert(connector=None, connection_info=None, secret=None, attached_at=None)
        one = {"match_id": attachment}
        for prepared, values in (
            (statements.GET, one),
            (statements.GET_IN_PROJECT, {**one, "match_project": "p"}),
            (statements.GET_IN_PROJECT, {**one, "match_project": "other"}),
            (statements.LIST_OF_VOLUME, self.params),
            (statements.LOCK_VOLUME, self.params),
            (statements.LOCK_VOLUME_TO_RESERVE, self.params),
            (statements.LOCK_VOLUME_TO_CONNECT, self.params),
            (volume_store._GET, self.params),
            (volume_store._GET_IN_PROJECT, {**self.params, "match_project": db_rows.PROJECT}),
        ):
            expected = self.ordinarily(prepared.statement, values, session.writer)
            with session.writer() as connection:
                self.assertEqual(expected, prepared.fetch_all(connection, values))
                first = prepared.fetch_one(connection, values)
            self.assertEqual(expected[0] if expected else None, first)

    def test_execute_stores_values_as_sqlalchemy(self):
        row = self.insert()
        (stored,) = self.ordinarily(sa.select(A).where(A.c.id == row["id"]), {})
        self.assertEqual(row, {name: stored[name] for name in row})
        empty = {stored[name] for name in stored.keys() - row.keys()}
        self.assertEqual({None}, empty)

    def test_execute_returns_matched_rows(self):
        with session.writer() as connection:
            for _ in range(2):  # the second time, nothing changes
                values = {**self.params, "name": "x", **LATER}
                self.assertEqual(1, RENAME.execute(connection, values))
            self.assertEqual(0, RENAME.execute(connection, {**values, "match_id": "none"}))
        self.assertEqual("x", db_rows.get_volume(self.volume)["name"])

    def test_execute_is_part_of_transaction(self):
        with self.assertRaises(LookupError), session.writer() as connection:
            RENAME.execute(connection, {**self.params, "name": "x", **LATER})
            (seen,) = volume_store._GET.fetch_all(connection, self.params)
            raise LookupError
        self.assertEqual("x", seen["name"])
        self.assertIsNone(db_rows.get_volume(self.volume)["name"])

    def test_execute_raises_same_database_error(self):
        row = self.insert()
        row = encryption.bind(row, row["id"])
        for kind, values in (
            (db_exception.DBDuplicateEntry, row),
            (db_exception.DBReferenceError, {**row, "id": "x", "volume_id": "none"}),
        ):
            raised = []
            for execute in (
                lambda connection, values=values: statements.INSERT.execute(connection, values),
                lambda connection, values=values: connection.execute(sa.insert(A), values),
            ):
                with self.assertRaises(kind) as caught, session.writer() as connection:
                    execute(connection)
                raised.append(caught.exception)
            self.assertEqual(type(raised[1]), type(raised[0]))
            inner = [item.inner_exception for item in raised]
            self.assertEqual(type(inner[1]), type(inner[0]))
        self.assertEqual(1, len(self.ordinarily(sa.select(A), {})))

    def test_execute_with_invalid_text_raises_same_error(self):
        raised = []
        for execute in (
            lambda connection: RENAME.execute(
                connection, {**self.params, "name": "\ud800", **LATER}
            ),
            lambda connection: connection.execute(sa.update(V).values(name="\ud800")),
        ):
            with self.assertRaises(exception.BadRequest) as caught:
                self.in_a_transaction(execute)
            raised.append(str(caught.exception))
        self.assertEqual(raised[1], raised[0])

    @staticmethod
    @retried
    def in_a_transaction(execute):
        with session.writer() as connection:
            execute(connection)

    def test_error_message_contains_no_values(self):
        wrong = CompiledSelect(
            sa.select(sa.column("nonesuch")).where(V.c.name == sa.bindparam("x")), dict
        )
        with self.assertRaises(Exception) as caught, session.reader() as connection:
            wrong.fetch_all(connection, {"x": "s3cret"})
        self.assertIn("nonesuch", str(caught.exception))
        self.assertNotIn("s3cret", str(caught.exception))

    def test_execute_with_unconvertible_value_raises_same_error(self):
        raised = []
        wrong = {**self.params, "provider": {"a": object()}, **LATER}
        for execute in (
            lambda connection: statements.UPDATE_VOLUME.execute(connection, wrong),
            lambda connection: connection.execute(statements.UPDATE_VOLUME.statement, wrong),
        ):
            with self.assertRaises(db_exception.DBError) as caught, session.writer() as connection:
                execute(connection)
            raised.append(type(caught.exception.inner_exception))
        self.assertEqual([sa.exc.StatementError] * 2, raised)

    def test_execute_without_transaction_is_refused(self):
        values = {**self.params, "name": "x", **LATER}
        with (
            session.reader() as connection,
            self.assertRaisesRegex(sa.exc.InvalidRequestError, "no"),
        ):
            RENAME.execute(connection, values)
        with session._engines().writer.connect() as connection:
            connection.begin().rollback()
            self.assertRaises(sa.exc.InvalidRequestError, RENAME.execute, connection, values)
        self.assertIsNone(db_rows.get_volume(self.volume)["name"])

    def test_lost_connection_in_transaction_is_not_reused(self):
        with self.assertRaises(sa.exc.PendingRollbackError), session.writer() as connection:
            connection.invalidate()
            volume_store._GET.fetch_all(connection, self.params)

    def listen(self, function, **how):
        for engine in (session._engines().reader, session._engines().writer):
            sa.event.listen(engine, "before_cursor_execute", function, **how)
            self.addCleanup(sa.event.remove, engine, "before_cursor_execute", function)

    def test_interrupted_connection_is_not_reused(self):
        class Cursor:
            def execute(self, *_):
                raise KeyboardInterrupt

            def close(self):
                pass

        with session.reader() as connection:
            vars(connection.connection)["cursor"] = Cursor
            self.assertRaises(
                KeyboardInterrupt, volume_store._GET.fetch_all, connection, self.params
            )
            self.assertTrue(connection.invalidated)
        self.assertEqual(self.volume, volume_store.get(self.volume, None)["id"])

    def test_driver_gets_same_text_and_arguments(self):
        received = []

        def hear(_connection, _cursor, sql, arguments, *_):
            received.append((sql.partition(" RETURNING ")[0], arguments))
            return sql, arguments

        self.listen(hear, retval=True)
        every = every_prepared()
        self.assertLess(20, len(every))
        for name, prepared in every.items():
            values = some_values(name, prepared.statement)
            received.clear()
            with (
                self.subTest(name),
                self.assertRaises(LookupError),
                session.writer() as connection,
            ):
                connection.execute(prepared.statement, values)
                vars(hear)["without_context"] = True
                with contextlib.suppress(db_exception.DBDuplicateEntry):
                    prepared.execute(connection, values)
                del vars(hear)["without_context"]
                raise LookupError
            # A third one is not sent: SQLAlchemy translates the error of the second one.
            otherwise, directly = received[:2]
            self.assertEqual(otherwise[0], directly[0], name)
            kind = type(otherwise[1])
            self.assertEqual(otherwise[1], kind(directly[1]), name)

    def test_listener_that_needs_context_gets_one(self):
        received = []
        self.listen(lambda *arguments: received.append(arguments))
        expected = self.ordinarily(volume_store._GET.statement, self.params)
        with session.writer() as connection:
            self.assertEqual(expected, volume_store._GET.fetch_all(connection, self.params))
            values = {**self.params, "name": "x", **LATER}
            self.assertEqual(1, RENAME.execute(connection, values))
        self.assertEqual(
            [3, 3], [len(received), sum(message[4] is not None for message in received)]
        )

    def test_execute_logs_statement(self):
        with self.assertLogs("sqlalchemy.engine", "INFO") as logged:
            volume_store.get(self.volume, None)
        self.assertIn("SELECT volumes.id", str(logged.output))
        self.assertNotIn(self.volume, str(logged.output))

    def test_execute_is_counted(self):
        before = session.counters().statements
        volume_store.get(self.volume, None)
        with session.writer() as connection:
            connection.execute(sa.select(1))
            RENAME.execute(connection, {**self.params, "name": "x", **LATER})
        self.assertEqual(before + 3, session.counters().statements)


class CompileTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")
        self.volume = db_rows.add_volume()["id"]

    def test_compile_without_value_names_it(self):
        with (
            session.reader() as connection,
            self.assertRaisesRegex(ValueError, "value for match_id"),
        ):
            volume_store._GET.fetch_all(connection, {})

    def test_compile_with_column_default_is_refused(self):
        with session.writer() as connection, self.assertRaisesRegex(ValueError, "updated_at"):
            RENAME.execute(connection, {"match_id": self.volume, "name": "x"})

    def test_compile_of_unsupported_statement_is_refused(self):
        name = sa.bindparam("name")
        for statement, says in (
            (sa.select(V.c.id).where(V.c.id.in_([self.volume])), "Not compilable"),
            (sa.select(V.c.id).where(V.c.name == sa.literal("x", literal_execute=True)), "Not"),
            (sa.select(V.c.id, A.c.id).where(V.c.id == A.c.volume_id), "Not compilable"),
            (sa.delete(V).returning(V.c.id), "Not compilable"),
            (sa.select(V.c.id).where(V.c.name == sa.bindparam("x", callable_=str)), "no value"),
            (sa.select(V.c.id).where(V.c.name == name), "no value for name"),
        ):
            with session.reader() as connection, self.assertRaisesRegex(ValueError, says):
                CompiledSelect(statement, dict).fetch_all(connection, {})

    def test_compile_with_escaped_name_finds_value(self):
        odd = CompiledSelect(sa.select(V.c.id).where(V.c.id == sa.bindparam("the id")), dict)
        with session.reader() as connection:
            self.assertEqual(
                {"id": self.volume}, odd.fetch_one(connection, {"the id": self.volume})
            )

    def test_compile_happens_once_for_each_set_of_names(self):
        query = sa.select(V.c.id).where(V.c.id == sa.bindparam("match_id"))
        statement = CompiledSelect(query, dict)
        compiled = []

        def compile_(*args, **kwargs):
            compiled.append(args)
            return type(statement.statement).compile(statement.statement, *args, **kwargs)

        statement.statement.compile = compile_
        for _ in range(3):
            with session.reader() as connection:
                statement.fetch_all(connection, {"match_id": self.volume})
        self.assertEqual(1, len(compiled))

    def test_sqlalchemy_sends_nothing_to_translate_an_error(self):
        sent = []

        class Cursor:
            rowcount = -1

            def execute(self, sql, *_):
                sent.append(sql)
                raise sqlite3.IntegrityError("UNIQUE constraint failed: volumes.id")

            def close(self):
                pass

        values = {"match_id": self.volume, "name": "x", **LATER}
        with session.writer() as connection:
            vars(connection.connection)["cursor"] = Cursor
            self.assertRaises(db_exception.DBDuplicateEntry, RENAME.execute, connection, values)
        self.assertEqual(
            1, len(sent), "SQLAlchemy no longer asks listeners to do_execute before the driver"
        )

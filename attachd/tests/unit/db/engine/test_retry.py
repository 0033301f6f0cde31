# SPDX-License-Identifier: Apache-2.0
"""What is repeated, what is given up at once, and what callers are told."""

import ast
from pathlib import Path
import unittest
from unittest import mock

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import retry, session
from attachd.db.engine.retry import retried
from attachd.tests.fixtures import databases


class RetriedTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        clock = self.enterContext(mock.patch.object(retry, "time"))
        clock.monotonic.return_value = 1000.0
        self.sleep = clock.sleep
        self.calls = 0

    def _call(self, *outcomes):
        """Call a function that ends in each of the outcomes in turn, the last one for ever."""

        @retried
        def function():
            outcome = outcomes[min(self.calls, len(outcomes) - 1)]
            self.calls += 1
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return function()

    def test_a_deadlock_and_a_lost_connection_are_not_noticed(self):
        trouble = (db_exception.DBDeadlock(), db_exception.DBConnectionError())
        self.assertEqual("done", self._call(*trouble, "done"))
        self.assertEqual(3, self.calls)

    def test_pauses_grow_and_vary_and_are_two_seconds_in_all(self):
        with mock.patch.object(retry.random, "uniform", side_effect=lambda _low, high: high):
            self.assertRaises(exception.Unavailable, self._call, db_exception.DBConnectionError())
        pauses = [call.args[0] for call in self.sleep.call_args_list]
        self.assertEqual(sorted(pauses), pauses)
        self.assertEqual(10, self.calls)
        self.assertLess(sum(pauses) / 2, 3)

    def test_no_try_begins_when_the_time_is_over(self):
        clock = iter([0.0, 4.0, 8.0, 10.5])
        with mock.patch.object(retry.time, "monotonic", side_effect=lambda: next(clock)):
            self.assertRaises(exception.Unavailable, self._call, db_exception.DBConnectionError())
        self.assertEqual(3, self.calls)

    def test_postgresql_tells_in_its_own_way_that_locks_took_too_long(self):
        held = mock.Mock(spec=Exception, pgcode="55P03", args=())
        locked = sa.exc.OperationalError("UPDATE", {}, held)
        self.assertEqual("done", self._call(locked, "done"))
        with self.assertRaisesRegex(exception.Unavailable, "too busy"):
            self._call(locked)

    def test_a_database_that_stays_away_is_said_to_be(self):
        with self.assertRaisesRegex(exception.Unavailable, "does not answer. Try again later"):
            self._call(db_exception.DBConnectionError())

    def test_deadlocks_without_end_are_said_to_be_too_much(self):
        with self.assertRaisesRegex(exception.Unavailable, "too busy"):
            self._call(db_exception.DBDeadlock())

    def test_our_own_errors_are_raised_at_once(self):
        self.assertRaises(exception.NotFound, self._call, exception.NotFound())
        self.assertEqual(1, self.calls)

    def test_a_mistake_of_ours_is_raised_at_once_as_it_is(self):
        self.assertRaises(ZeroDivisionError, self._call, ZeroDivisionError())
        self.assertEqual(1, self.calls)

    def test_what_another_try_would_not_help_is_told_apart(self):
        operational = sa.exc.OperationalError("SELECT", {}, Exception("disk full"))
        data = db_exception.DBError(sa.exc.DataError("INSERT", {}, Exception("too long")))
        cases = [
            (sa.exc.TimeoutError(), exception.Unavailable, "Too many requests"),
            (db_exception.DBNonExistentDatabase("x"), exception.Unavailable, "does not exist"),
            (operational, exception.Unavailable, "operational error"),
            (data, exception.BadRequest, "cannot be stored"),
            (db_exception.DBDataError(), exception.BadRequest, "cannot be stored"),
            (db_exception.DBInvalidUnicodeParameter(), exception.BadRequest, "cannot be stored"),
        ]
        for error, raised, text in cases:
            with self.subTest(text, error=error):
                self.calls = 0
                self.assertRaisesRegex(raised, text, self._call, error)
                self.assertEqual(1, self.calls)

    def test_the_function_keeps_its_name_and_text(self):
        @retried
        def function():
            """Do something."""

        self.assertEqual("function", function.__name__)
        self.assertEqual("Do something.", function.__doc__)


class MissingTablesTest(unittest.TestCase):
    kind = "sqlite"

    def test_a_database_without_tables_is_told_from_one_that_is_away(self):
        databases.use_without_tables(self, self.kind)

        @retried
        def read():
            with session.reader() as connection:
                return connection.execute(sa.select(models.volumes)).all()

        with self.assertRaisesRegex(exception.Unavailable, "attachd-manage db sync"):
            read()


class TransactionsTest(unittest.TestCase):
    def test_whatever_others_call_is_tried_again(self):
        bare = []
        for path in Path(retry.__file__).parent.glob("*.py"):
            functions = (
                each
                for each in ast.parse(path.read_text()).body
                if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
            )
            bare += [
                f"{path.stem}.{each.name}"
                for each in functions
                if any(
                    isinstance(inner, ast.withitem) and _is_transaction(inner.context_expr)
                    for inner in ast.walk(each)
                )
                and "api.retried" not in map(ast.unparse, each.decorator_list)
            ]
        self.assertEqual([], bare)


def _is_transaction(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"api.reader", "api.writer"}

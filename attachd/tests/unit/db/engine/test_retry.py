# SPDX-License-Identifier: Apache-2.0
"""Retries, errors without a retry, and their translation."""

import ast
from pathlib import Path
import unittest
from unittest import mock

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import db, exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.tests.fixtures import databases


class RetriedTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.sleep = self.enterContext(mock.patch("tenacity.nap.time")).sleep
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

    def test_deadlock_and_lost_connection_are_retried(self):
        trouble = (db_exception.DBDeadlock(), db_exception.DBConnectionError())
        self.assertEqual("done", self._call(*trouble, "done"))
        self.assertEqual(3, self.calls)

    def test_backoff_grows_with_jitter_to_two_seconds(self):
        with mock.patch("tenacity.wait.random.uniform", side_effect=lambda _low, high: high):
            self.assertRaises(exception.Unavailable, self._call, db_exception.DBConnectionError())
        pauses = [call.args[0] for call in self.sleep.call_args_list]
        self.assertEqual(sorted(pauses), pauses)
        self.assertEqual(10, self.calls)
        self.assertLess(sum(pauses) / 2, 3)

    def test_retry_ends_after_retry_timeout(self):
        with mock.patch("tenacity.time.monotonic", side_effect=lambda: 3.5 * self.calls):
            self.assertRaises(exception.Unavailable, self._call, db_exception.DBConnectionError())
        self.assertEqual(3, self.calls)

    def test_postgresql_lock_timeout_is_retried(self):
        held = mock.Mock(spec=Exception, pgcode="55P03", args=())
        locked = sa.exc.OperationalError("UPDATE", {}, held)
        self.assertEqual("done", self._call(locked, "done"))
        with self.assertRaisesRegex(exception.Unavailable, "too busy"):
            self._call(locked)

    def test_lasting_connection_error_raises_unavailable(self):
        with self.assertRaisesRegex(exception.Unavailable, "does not answer. Try again later"):
            self._call(db_exception.DBConnectionError())

    def test_lasting_deadlock_raises_unavailable_as_busy(self):
        with self.assertRaisesRegex(exception.Unavailable, "too busy"):
            self._call(db_exception.DBDeadlock())

    def test_own_exception_is_not_retried(self):
        self.assertRaises(exception.NotFound, self._call, exception.NotFound())
        self.assertEqual(1, self.calls)

    def test_programming_error_is_not_retried(self):
        self.assertRaises(ZeroDivisionError, self._call, ZeroDivisionError())
        self.assertEqual(1, self.calls)

    def test_permanent_errors_are_translated(self):
        operational = sa.exc.OperationalError("SELECT", {}, Exception("disk full"))
        # The server has become a standby: InternalError in psycopg2.
        read_only = sa.exc.InternalError("UPDATE", {}, Exception("read-only transaction"))
        full = {
            "sqlite": mock.Mock(spec=["sqlite_errorname"], sqlite_errorname="SQLITE_FULL"),
            "mariadb": mock.Mock(spec=["args"], args=(1021, "Disk full (/tmp/x)")),
            "postgresql": mock.Mock(spec=["pgcode"], pgcode="53100"),
        }
        data = db_exception.DBError(sa.exc.DataError("INSERT", {}, Exception("too long")))
        cases = [
            (sa.exc.TimeoutError(), exception.Unavailable, "Too many requests"),
            (db_exception.DBNonExistentDatabase("x"), exception.Unavailable, "does not exist"),
            (operational, exception.Unavailable, "operational error"),
            (db_exception.DBError(read_only), exception.Unavailable, "operational error"),
            *(
                (
                    sa.exc.OperationalError("INSERT", {}, original),
                    exception.Unavailable,
                    "no space",
                )
                for original in full.values()
            ),
            (data, exception.BadRequest, "cannot be stored"),
            (db_exception.DBDataError(), exception.BadRequest, "cannot be stored"),
            (db_exception.DBInvalidUnicodeParameter(), exception.BadRequest, "cannot be stored"),
        ]
        for error, raised, text in cases:
            with self.subTest(text, error=error):
                self.calls = 0
                self.assertRaisesRegex(raised, text, self._call, error)
                self.assertEqual(1, self.calls)

    def test_retried_keeps_name_and_docstring(self):
        @retried
        def function():
            """Do something."""

        self.assertEqual("function", function.__name__)
        self.assertEqual("Do something.", function.__doc__)


class MissingTablesTest(unittest.TestCase):
    kind = "sqlite"

    def test_missing_tables_raise_unavailable_with_advice(self):
        databases.use_without_tables(self, self.kind)

        @retried
        def read():
            with session.reader() as connection:
                return connection.execute(sa.select(models.volumes)).all()

        with self.assertRaisesRegex(exception.Unavailable, "attachd-manage db sync"):
            read()


class TransactionsTest(unittest.TestCase):
    def test_each_function_with_transaction_is_retried(self):
        functions = [
            (f"{path.stem}.{function.name}", function)
            for path in Path(db.__file__).parent.rglob("*.py")
            for function in ast.parse(path.read_text()).body
            if isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
        ]
        transactions = {
            name: list(map(ast.unparse, function.decorator_list))
            for name, function in functions
            if any(_is_transaction(inner) for inner in ast.walk(function))
        }
        self.assertIn("volume_leases.acquire_committed", transactions)
        self.assertIn("messages.purge", transactions)
        bare = [name for name, decorators in transactions.items() if "retried" not in decorators]
        self.assertEqual([], bare)


def _is_transaction(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "session.delete_some",
        "session.fetch_all",
        "session.fetch_one",
        "session.reader",
        "session.write",
        "session.writer",
    }

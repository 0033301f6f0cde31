# SPDX-License-Identifier: Apache-2.0
"""Statements that are compiled once and then handed to the driver; for what each attach does.

For each execution SQLAlchemy makes a context and a result, which takes as much CPU as the driver
takes for the statement itself.  Here SQLAlchemy compiles, converts values, explains errors and
has the connection and its transaction; what is between is left out.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
from typing import Any, Final, NamedTuple, NoReturn

import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

Row = dict[str, Any]
Statement = sa.Select[Any] | sa.Insert | sa.Update | sa.Delete

_Convert = Callable[[Any], Any] | None
"""Between what Python has and what the driver takes or gives; None: they are the same."""


class Prepared:
    """A statement that is executed again and again, with the same names of values each time.

    Values are given by name: those of its bindparams, and the columns that an INSERT or UPDATE
    stores.  Defaults of columns are not filled in: what is to be stored is named.  Of an
    engine's events there is ``before_cursor_execute``, without a context, and ``handle_error``.

    :ivar statement: what SQLAlchemy would execute
    """

    def __init__(self, statement: Statement) -> None:
        self.statement: Final = statement

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> int:
        """Execute it in the connection's transaction, if that has one.

        :returns: how many rows it was about
        :raises: what ``connection.execute()`` raises
        """
        return _execute(connection, self._text(connection, values), values).matched

    def row(self, connection: sa.Connection, values: Mapping[str, Any]) -> Row | None:
        """Execute it and return the first row, by the names of its columns; None: there is none.

        :raises: as :meth:`run`
        """
        return next(iter(self.rows(connection, values)), None)

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> list[Row]:
        """Execute it and return its rows, by the names of their columns.

        :raises: as :meth:`run`
        """
        text = self._text(connection, values)
        return [
            {
                name: read(value) if read else value
                for (name, read), value in zip(text.columns, row, strict=True)
            }
            for row in _execute(connection, text, values).rows
        ]

    def _text(self, connection: sa.Connection, values: Mapping[str, Any]) -> "_Text":
        return _compile(self.statement, connection.dialect, tuple(values))


class _Bind(NamedTuple):
    """One place of a statement where a value belongs.

    :ivar name: whose value; None: it is always the same one
    :ivar fixed: that one
    """

    marker: str
    name: str | None
    write: _Convert
    fixed: Any


class _Text(NamedTuple):
    """What a driver gets.

    :ivar columns: of the result; none of a statement that has no result
    """

    sql: str
    positional: bool
    binds: Sequence[_Bind]
    columns: Sequence[tuple[str, _Convert]]

    def arguments(self, values: Mapping[str, Any]) -> Any:
        """Return the values in the form in which the driver wants them."""
        written = [
            fixed if name is None else write(values[name]) if write else values[name]
            for _marker, name, write, fixed in self.binds
        ]
        if self.positional:
            return written
        return {bind.marker: value for bind, value in zip(self.binds, written, strict=True)}


class _Done(NamedTuple):
    matched: int
    rows: Sequence[Sequence[Any]]


@functools.lru_cache(maxsize=1024)
def _compile(statement: Statement, dialect: sa.Dialect, names: Sequence[str]) -> _Text:
    if isinstance(statement, sa.Insert):
        statement = statement.inline()  # nobody asks for the number of a row
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    assert isinstance(compiled, SQLCompiler)
    filled_in = [*(compiled.insert_prefetch or ()), *(compiled.update_prefetch or ())]
    if filled_in or compiled.post_compile_params:
        raise ValueError(f"It cannot be prepared without values for {filled_in}: {compiled}")
    order = list(compiled.positiontup or ()) if compiled.positional else list(compiled.binds)
    columns = statement.selected_columns if isinstance(statement, sa.Select) else ()
    return _Text(
        compiled.string,
        compiled.positional,
        [_bind(compiled, name, given=name in names) for name in order],
        [
            (str(column.key), column.type.dialect_impl(dialect).result_processor(dialect, None))
            for column in columns
        ],
    )


def _bind(compiled: SQLCompiler, name: str, *, given: bool) -> _Bind:
    bound = compiled.binds[name]
    if bound.required and not given:
        raise ValueError(f"There is no value for {name}: {compiled}")
    dialect = compiled.dialect
    write = bound.type.dialect_impl(dialect).bind_processor(dialect)
    if given:
        return _Bind(name, name, write, None)
    fixed = bound.effective_value
    return _Bind(name, None, None, write(fixed) if write else fixed)


def _execute(connection: sa.Connection, text: _Text, values: Mapping[str, Any]) -> _Done:
    arguments = text.arguments(values)
    cursor = None
    try:
        cursor = connection.connection.cursor()
        for listener in connection.engine.dispatch.before_cursor_execute:
            listener(connection, cursor, text.sql, arguments, None, False)
        cursor.execute(text.sql, arguments)
        done = _Done(cursor.rowcount, cursor.fetchall() if text.columns else ())
        cursor.close()
    except BaseException as error:  # noqa: BLE001  as SQLAlchemy does: an interrupted one is lost
        _explain(connection, error, text.sql, arguments, cursor)
    return done


def _explain(
    connection: sa.Connection, error: BaseException, sql: str, arguments: Any, cursor: Any
) -> NoReturn:
    """Raise what SQLAlchemy, and oslo.db that listens to it, make of an error of the driver.

    If the connection is lost, its pool hears of it.
    """
    known = isinstance(error, connection.dialect.loaded_dbapi.Error)
    # What is no error of the driver stays as it is.
    connection._handle_dbapi_exception(  # noqa: SLF001  pinned by tests/unit/db/test_prepared.py
        error, sql if known else None, arguments, cursor, None
    )

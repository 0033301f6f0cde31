# SPDX-License-Identifier: Apache-2.0
"""Connections to the database: reader, writer, retried; used by every module of db.

@api.retried
def rename(volume_id: str, name: str) -> None:
    with api.writer() as connection:
        connection.execute(...)
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import os
import threading
from typing import Any, NamedTuple, ParamSpec, TypeVar

from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exception
from oslo_db import options as oslo_db_options
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import engines

P = ParamSpec("P")
R = TypeVar("R")

oslo_db_options.set_defaults(CONF)


class Counters(NamedTuple):
    """What this process has done so far, over all threads, without BEGIN and COMMIT."""

    statements: int
    writing_transactions: int


@dataclasses.dataclass
class _Engines:
    """The engines of one process and what went through them."""

    reader: sa.Engine
    writer: sa.Engine
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    statements: int = 0
    commits: int = 0

    def __post_init__(self) -> None:
        for engine in (self.reader, self.writer):
            sa.event.listen(engine, "before_cursor_execute", self._count_statement)
        sa.event.listen(self.writer, "commit", self._count_commit)

    def _count_statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement != "BEGIN IMMEDIATE":
            with self.lock:
                self.statements += 1

    def _count_commit(self, _connection: Any) -> None:
        with self.lock:
            self.commits += 1


class _Process:
    """What a process has; a forked one starts anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engines: _Engines | None = None
        # A connection belongs to the process that opened it.  The child must not even close
        # it, which the server would take for the parent's good-bye: it is kept, unused.
        self.inherited: list[_Engines] = []

    def forget(self) -> None:
        self.lock = threading.Lock()
        if self.engines is not None:
            self.inherited.append(self.engines)
            self.engines = None


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def _engines() -> _Engines:
    if (found := _process.engines) is not None:
        return found
    with _process.lock:
        if _process.engines is None:
            if not CONF.database.connection:
                raise exception.Unavailable(
                    reason="No database is configured: set connection in [database]."
                )
            _process.engines = _Engines(
                engines.reader(CONF.database), engines.writer(CONF.database)
            )
        return _process.engines


def dispose() -> None:
    """Close all connections; the next use opens new ones, as [database] says by then."""
    with _process.lock:
        found, _process.engines = _process.engines, None
    if found is not None:
        found.reader.dispose()
        found.writer.dispose()


def counters() -> Counters:
    """Return what this process has sent to its database since the engines were made."""
    found = _engines()
    return Counters(found.statements, found.commits)


@contextlib.contextmanager
def reader() -> Iterator[sa.Connection]:
    """Lend a connection for reading: each statement sees what is committed by then."""
    with _connect(_engines().reader) as connection:
        yield connection


@contextlib.contextmanager
def writer() -> Iterator[sa.Connection]:
    """Lend a connection for one transaction, committed at the end unless something was raised.

    :raises Unavailable: the connection was lost at the commit: only the database knows
        whether it was made, so nothing may be repeated blindly
    """
    with _connect(_engines().writer) as connection:
        transaction = connection.begin()
        try:
            yield connection
        except BaseException:
            transaction.rollback()
            raise
        try:
            transaction.commit()
        except db_exception.DBConnectionError as error:
            raise exception.Unavailable(
                reason="The connection to the database was lost while a change was being "
                "stored. It may have been stored: look at the resource before you try again."
            ) from error


def _connect(engine: sa.Engine) -> sa.Connection:
    try:
        return engine.connect()
    except db_exception.DBError:
        raise
    except sa.exc.OperationalError as error:
        # Not everything that a server can answer to a log-in is known to oslo.db.
        raise db_exception.DBConnectionError(error) from error


def retried(function: Callable[P, R]) -> Callable[P, R]:
    """Call again what met a deadlock or a lost connection; then say what is wrong with it.

    What is decorated has to be one transaction, which has not happened when it is repeated:
    a server undoes whatever it saw no COMMIT of.  There are about 10 tries in 4 seconds.

    :raises Unavailable: the database does not answer, or is too busy
    :raises BadRequest: a value is none that the database can store
    """
    repeated: Callable[P, R] = oslo_db_api.wrap_db_retry(
        retry_interval=0.01,
        max_retries=10,
        inc_retry_interval=True,
        max_retry_interval=1,
        retry_on_disconnect=True,
        retry_on_deadlock=True,
    )(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return repeated(*args, **kwargs)
        except (db_exception.DBDataError, db_exception.DBInvalidUnicodeParameter) as error:
            raise exception.BadRequest(reason="A value cannot be stored.") from error
        except (db_exception.DBConnectionError, db_exception.DBNonExistentDatabase) as error:
            raise exception.Unavailable(reason="The database does not answer.") from error
        except (db_exception.DBDeadlock, sa.exc.TimeoutError) as error:
            raise exception.Unavailable(reason="The database is too busy.") from error

    return call

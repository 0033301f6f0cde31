# SPDX-License-Identifier: Apache-2.0
"""Connections to the database for reading and for transactions.

@retried def rename(volume_id: str, name: str) -> None: with session.writer() as connection:
connection.execute(...)
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import os
import threading
from typing import Any, NamedTuple

from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_db import options as oslo_db_options
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db.engine import factory, timeouts
from attachd.db.engine.compiled import without_context
from attachd.db.engine.retry import retried

__all__ = [
    "Counters",
    "Precondition",
    "counters",
    "dialect",
    "display_url",
    "dispose",
    "no_timeouts",
    "reader",
    "retried",
    "set_defaults",
    "writer",
]


def set_defaults() -> None:
    """Set attachd's defaults of oslo.db's options; also called by the sample configuration
    generator.

    A pool keeps as many connections as threads work at the same time. A connection that is not
    kept is opened and closed for each use, which costs more than the use.
    """
    cfg.set_defaults(oslo_db_options.database_opts, max_pool_size=20)


set_defaults()
CONF.register_opts(oslo_db_options.database_opts, group="database")


_LOST_AT_COMMIT = (
    "The connection to the database was lost while a change was being stored. It may have been "
    "stored: check the resource before you try again."
)


class Counters(NamedTuple):
    """The number of statements of this process over all threads, without BEGIN and COMMIT."""

    statements: int
    writing_transactions: int


Precondition = Callable[[sa.Connection], None]
"""Executed by a transaction before anything else; raises to abort the transaction."""


@dataclasses.dataclass
class _Engines:
    """The engines of one process and the counts of what they executed."""

    reader: sa.Engine
    writer: sa.Engine
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    counts: bool = False
    statements: int = 0
    commits: int = 0

    def count(self) -> Counters:
        """Return the counts; the first call starts counting.

        An event listener costs SQLAlchemy a twentieth of a request.
        """
        with self.lock:
            if not self.counts:
                for engine in (self.reader, self.writer):
                    event = "before_cursor_execute"
                    sa.event.listen(engine, event, self._count_statement, retval=True)
                sa.event.listen(self.writer, "commit", self._count_commit)
                self.counts = True
            return Counters(self.statements, self.commits)

    @without_context
    def _count_statement(
        self, _connection: Any, _cursor: Any, statement: str, arguments: Any, *_: Any
    ) -> tuple[str, Any]:
        with self.lock:
            self.statements += 1
        return statement, arguments

    def _count_commit(self, _connection: Any) -> None:
        with self.lock:
            self.commits += 1


class _Process:
    """The state of a process; a forked process starts with a new one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engines: _Engines | None = None
        # A connection belongs to the process that opened it. The child must not close it, because
        # the server would take that for the end of the parent's session: it is kept unused.
        self.inherited: list[_Engines] = []
        self.patient = 0

    def forget(self) -> None:
        self.lock = threading.Lock()
        self.patient = 0
        if self.engines is not None:
            self.inherited.append(self.engines)
            self.engines = None


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def _engines() -> _Engines:
    if (engines := _process.engines) is not None:
        return engines
    with _process.lock:
        if _process.engines is None:
            limits = None if _process.patient else timeouts.from_options(CONF.database)
            _process.engines = _create_engines(limits)
        return _process.engines


def _create_engines(limits: timeouts.Timeouts | None) -> _Engines:
    if not CONF.database.connection:
        raise exception.ConfigurationError(
            reason="No database is configured: set connection in [database]."
        )
    try:
        made = _Engines(
            factory.create_reader(CONF.database, limits),
            factory.create_writer(CONF.database, limits),
        )
    except (sa.exc.ArgumentError, ImportError, ValueError) as error:
        raise exception.ConfigurationError(
            reason=f"The connection in [database] is invalid: {error}"
        ) from error
    if CONF.metrics.enabled:
        made.count()  # from the first statement on, before several threads use them
    return made


def dialect() -> str:
    """Return the SQL dialect of the configured database: sqlite, mysql, mariadb or postgresql."""
    return _engines().writer.dialect.name


def display_url() -> str:
    """Return the URL of the configured database without its password, for messages."""
    return _engines().writer.url.render_as_string(hide_password=True)


def dispose() -> None:
    """Close all connections; the next use opens new ones with the current [database] options."""
    with _process.lock:
        engines, _process.engines = _process.engines, None
    _close(engines)


def _close(engines: _Engines | None) -> None:
    if engines is not None:
        engines.reader.dispose()
        engines.writer.dispose()


@contextlib.contextmanager
def no_timeouts() -> Iterator[None]:
    """Wait in this process for as long as the database needs; a migration may take hours.

    The first of several threads opens new connections and the last one closes them: a thread that
    waits for a connection of a pool would wait forever if the pool was disposed of meanwhile.
    """
    _change_untimed(1)
    try:
        yield
    finally:
        _change_untimed(-1)


def _change_untimed(more: int) -> None:
    with _process.lock:
        before, _process.patient = _process.patient, _process.patient + more
        if before and _process.patient:
            return
        engines, _process.engines = _process.engines, None
    _close(engines)


def pools() -> list[str]:
    """Return the size and use of the connection pools, as lines of a report."""
    if (engines := _process.engines) is None:
        return ["No connection has been needed yet."]
    return [
        f"{name}: {engine.pool.status()}"
        for name, engine in (("reading", engines.reader), ("writing", engines.writer))
    ]


def counters() -> Counters:
    """Return what this process has sent to its database since the first call.

    With metrics, counting starts with the engines. Otherwise it starts with the first call, best
    while no other thread works, and again after the engines are created anew.
    """
    return _engines().count()


def reader() -> sa.Connection:
    """Check out a connection for reading: each statement sees what is committed by then.

    :returns: a context manager that returns the connection to the pool
    """
    return _connect(_engines().reader)


@contextlib.contextmanager
def writer() -> Iterator[sa.Connection]:
    """Check out a connection for one transaction, committed at the end unless an exception is
    raised.

    :raises Unavailable: the connection was lost at the commit: only the database knows whether it
        was committed, so the transaction must not be repeated blindly
    """
    with _connect(_engines().writer) as connection:
        transaction = connection.begin()
        try:
            yield connection
        except BaseException:
            _roll_back(connection, transaction)
            raise
        try:
            transaction.commit()
        except BaseException as error:
            # Whether the transaction was committed or not, no other thread may get this
            # connection.
            connection.invalidate()
            if isinstance(error, db_exception.DBConnectionError):
                raise exception.Unavailable(reason=_LOST_AT_COMMIT) from error
            raise


def _roll_back(connection: sa.Connection, transaction: sa.RootTransaction) -> None:
    try:
        transaction.rollback()
    except (db_exception.DBError, sa.exc.SQLAlchemyError):
        # The caller needs the error that caused the rollback, not this one.
        connection.invalidate()


def _connect(engine: sa.Engine) -> sa.Connection:
    try:
        return engine.connect()
    except db_exception.DBError:
        raise
    except (sa.exc.OperationalError, sa.exc.ResourceClosedError, NotImplementedError) as error:
        # oslo.db does not know every answer of a server to a log-in. The other errors are
        # SQLAlchemy's when a connection is lost while it inspects, once, what the server supports.
        raise db_exception.DBConnectionError(error) from error
    except engine.dialect.loaded_dbapi.Error as error:
        # Neither of them sees what a driver raises while factory.py sets a connection up.
        raise db_exception.DBConnectionError(error) from error

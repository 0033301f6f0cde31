# SPDX-License-Identifier: Apache-2.0
"""Connections to the database for reading and for transactions, and the engines behind them.

::

    @retried
    def rename(volume_id: str, name: str) -> None:
        with session.writer() as connection:
            connection.execute(...)

Each process has two engines: the reader commits each statement by itself and so needs no BEGIN,
COMMIT or ROLLBACK; the writer runs transactions.  An isolation level is set once per connection,
so that a transaction costs its own statements and one COMMIT, nothing else: no ping at the
checkout (retry.retried repeats a call that met a dead connection) and no ROLLBACK at the return
(:func:`writer` has ended the transaction by then).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import inspect
import logging
import os
import threading
from typing import Any, NamedTuple, TypeVar, overload

from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_db import options as oslo_db_options
from oslo_db.sqlalchemy import exc_filters
from pymysql import connections, protocol
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import timeouts
from attachd.db.engine.compiled import is_failure, raise_failure, without_context
from attachd.db.engine.timeouts import Timeouts
from attachd.linux.boot import boot_clock


def set_defaults() -> None:
    """Set attachd's defaults of oslo.db's options; also called by the sample configuration
    generator.

    A pool keeps as many connections as threads work at the same time. A connection that is not
    kept is opened and closed for each use, which costs more than the use. In a burst more
    threads wait for one, as long as callers wait for an answer.
    """
    cfg.set_defaults(
        oslo_db_options.database_opts, max_pool_size=20, max_overflow=28, pool_timeout=60
    )


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


SQLITE_BUSY_TIMEOUT = 30.0
"""Seconds that a process waits for the writer of another process."""

Arguments = dict[str, Any]
RowT = TypeVar("RowT")

Options = Any
"""CONF.database, or an object with the same attributes: oslo.db's options."""


def create_reader(options: Options, limits: Timeouts | None = None) -> sa.Engine:
    """Create an engine whose statements each see what was committed before them.

    :param limits: the timeouts; None: no timeouts
    """
    arguments = {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
    return _create_engine(options, limits, arguments)


def create_writer(options: Options, limits: Timeouts | None = None) -> sa.Engine:
    """Create an engine for short transactions that lock what they are about to change.

    :param limits: as of :func:`create_reader`
    """
    url = sa.make_url(options.connection)
    if url.get_backend_name() == "sqlite":
        # SQLite has one writer at a time. Threads wait in the pool and wake as soon as it is free;
        # SQLite itself would poll.
        engine = _create_engine(options, limits, {"pool_size": 1, "max_overflow": 0})
        # The dialect is this engine's own; an event would cost each statement something.
        vars(engine.dialect)["do_begin"] = _begin_immediate
        return engine
    return _create_engine(options, limits, {"isolation_level": "READ COMMITTED"})


def _create_engine(options: Options, limits: Timeouts | None, arguments: Arguments) -> sa.Engine:
    url = sa.make_url(options.connection)
    if options.connection_parameters:
        url = url.update_query_string(options.connection_parameters, append=True)
    dialect = url.get_backend_name()
    # Parameters hold connectors and secrets, which no error message may show.
    arguments = {"pool_reset_on_return": None, "hide_parameters": True, **arguments}
    arguments = _pool_arguments(options) | arguments
    connect_args = arguments["connect_args"] = timeouts.connect_args(url, limits) if limits else {}
    if dialect == "sqlite":
        _create_private_file(url)
    elif dialect in {"mysql", "mariadb"} and "charset" not in url.query:
        connect_args["charset"] = "utf8mb4"
    if url.get_driver_name() == "pymysql":
        cache_column_descriptions()
    engine = sa.create_engine(url, logging_name="attachd", **arguments)
    # oslo.db's other listeners are about savepoints, which attachd does not use. An engine that
    # has a listener for errors only spends a twentieth less on a request.
    sa.event.listen(engine, "handle_error", exc_filters.handler, retval=True)
    sa.event.listen(engine, "do_execute", raise_failure)
    statements = _session_statements(dialect, options)
    if limits:
        statements += timeouts.session_statements(dialect, limits)
    _set_up_connections(engine, dialect, statements)
    return engine


def _pool_arguments(options: Options) -> Arguments:
    given = {
        "poolclass": sa.QueuePool,
        "pool_recycle": options.connection_recycle_time,
        "pool_size": options.max_pool_size,
        "max_overflow": options.max_overflow,
        "pool_timeout": options.pool_timeout,
    }
    return {name: value for name, value in given.items() if value is not None}


def _create_private_file(url: sa.URL) -> None:
    """Create the database file with access for its owner only; SQLite gives -wal and -shm its
    mode.
    """
    if not url.database or url.database == ":memory:":
        raise ValueError("SQLite needs a file: sqlite:////path/to/attachd.sqlite")
    try:
        os.close(os.open(url.database, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        # SQLite meets the same error and raises what callers expect.
        logging.getLogger(__name__).debug("Cannot create %s: %s", url.database, error)


def _set_up_connections(engine: sa.Engine, dialect: str, statements: Sequence[str]) -> None:
    @sa.event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        if dialect == "sqlite":
            # attachd begins transactions (_begin_immediate), not Python's sqlite3.
            connection.isolation_level = None
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        if clock := _CLOCKS.get(dialect):
            asked_at = boot_clock()
            cursor.execute(clock)
            models.follow_clock(asked_at, *cursor.fetchone())
        cursor.close()
        if dialect == "postgresql":
            connection.commit()  # or what was set is undone with the first transaction


_CLOCKS: Mapping[str, str] = {
    "mysql": "SELECT UTC_TIMESTAMP(6)",
    "mariadb": "SELECT UTC_TIMESTAMP(6)",
    "postgresql": "SELECT timezone('utc', clock_timestamp())",
}
"""The present in UTC, by dialect; SQLite has no clock but that of this machine."""


def _session_statements(dialect: str, options: Options) -> list[str]:
    if dialect == "sqlite":
        # NORMAL: a commit survives the process, and the file stays consistent, but the last
        # commits before a power failure may be lost. Their subjects are gone as well: SQLite is
        # for one machine, whose iSCSI sessions and daemons have ended with it. Waiting for the
        # disk at each commit (FULL) costs several times the transaction itself.
        synchronous = "NORMAL" if options.sqlite_synchronous else "OFF"
        return [
            f"PRAGMA busy_timeout = {int(SQLITE_BUSY_TIMEOUT * 1000)}",
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {synchronous}",
            "PRAGMA foreign_keys = ON",
        ]
    if dialect in {"mysql", "mariadb"}:
        settings: Mapping[str, str | int | None] = {
            "sql_mode": options.mysql_sql_mode,
            "wsrep_sync_wait": options.mysql_wsrep_sync_wait,
        }
        return [
            f"SET SESSION {name} = {value!r}"
            for name, value in settings.items()
            if value is not None
        ]
    return []


def _begin_immediate(connection: Any) -> None:
    # A plain BEGIN takes the lock with the first write; of two transactions that have read before
    # it only one can go on, and the other gets "database is locked" without any waiting.
    connection.cursor().execute("BEGIN IMMEDIATE").close()


CACHED_DESCRIPTIONS = 4096
"""Number of column descriptions kept per process; attachd's queries have a few hundred."""


def cache_column_descriptions() -> None:
    """Have PyMySQL parse each description of a column once; without effect on an unknown PyMySQL.

    MariaDB describes each column of each answer: table, name, type, length. PyMySQL, written in
    Python, takes longer to parse these than the rows. The description of one column is the same
    bytes each time, and the parsed object is never changed.
    """
    known = getattr(connections, "FieldDescriptorPacket", None)
    if known is protocol.FieldDescriptorPacket and inspect.isclass(known):
        cached = functools.lru_cache(CACHED_DESCRIPTIONS)(known)
        connections.FieldDescriptorPacket = cached  # type: ignore[attr-defined]


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
        self,
        _connection: Any,
        _cursor: Any,
        statement: str,
        arguments: Any,
        context: Any,
        _many: bool,  # noqa: FBT001  SQLAlchemy's
    ) -> tuple[str, Any]:
        if not is_failure(context):
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
            reason="No database is configured: set connection in [database]. If the file that has "
            "it was not read, name it with --config-file or ATTACHD_CONFIG_FILES."
        )
    try:
        made = _Engines(
            create_reader(CONF.database, limits),
            create_writer(CONF.database, limits),
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


@overload
def fetch_all(statement: sa.Select[Any]) -> list[dict[str, Any]]: ...
@overload
def fetch_all(statement: sa.Select[Any], row_type: type[RowT]) -> list[RowT]: ...
def fetch_all(statement: sa.Select[Any], row_type: Any = None) -> Any:  # noqa: ARG001
    """Return the rows that a statement reads.

    :param row_type: what mypy takes them for, of row_types.py; the rows are not converted
    """
    with reader() as connection:
        return [dict(row) for row in connection.execute(statement).mappings()]


@overload
def fetch_one(statement: sa.Select[Any]) -> dict[str, Any] | None: ...
@overload
def fetch_one(statement: sa.Select[Any], row_type: type[RowT]) -> RowT | None: ...
def fetch_one(statement: sa.Select[Any], row_type: Any = None) -> Any:  # noqa: ARG001
    """Return the row that a statement reads; None: there is none.

    :param row_type: as of :func:`fetch_all`
    """
    with reader() as connection:
        row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else dict(row)


@contextlib.contextmanager
def writer() -> Iterator[sa.Connection]:
    """Check out a connection for one transaction, committed at the end unless an exception is
    raised.

    :raises DatabaseUnavailable: the connection was lost at the commit: only the database knows
        whether it was committed, so the transaction must not be repeated blindly
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
                raise exception.DatabaseUnavailable(reason=_LOST_AT_COMMIT) from error
            raise


def write(statement: sa.Insert | sa.Update | sa.Delete) -> int:
    """Execute a statement as a transaction; return how many rows it matched."""
    with writer() as connection:
        return connection.execute(statement).rowcount


def delete_some(key: sa.Column[Any], condition: sa.ColumnElement[bool], limit: int) -> int:
    """Delete some rows of a table as a transaction, so that it ends before [database]read_timeout.

    :param key: the primary key of the table
    :param condition: of the rows
    :param limit: how many at most
    :returns: how many were deleted; 0: there were none
    """
    with writer() as connection:
        keys = [*connection.scalars(sa.select(key).where(condition).limit(limit))]
        if keys:
            connection.execute(sa.delete(key.table).where(key.in_(keys), condition))
    return len(keys)


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
        # Neither of them sees what a driver raises while SQLAlchemy sets a connection up.
        raise db_exception.DBConnectionError(error) from error


def lock_row(connection: sa.Connection, table: sa.Table, key: str) -> None:
    """Lock a row until this transaction ends; other transactions that lock it wait.

    :param table: with one column, its primary key; a missing row is inserted
    :param key: of any length; for one that is too long its digest is stored
    """
    kind = connection.dialect.name
    if kind == "sqlite":
        return  # SQLite has one writer at a time, see :func:`create_writer`.
    (column,) = table.primary_key.columns
    assert isinstance(column.type, sa.String)
    assert column.type.length is not None
    if len(key) > column.type.length:
        # MariaDB would cut it, and this transaction wait for the lock of the row it then finds.
        key = hashlib.sha256(key.encode()).hexdigest()
    lock = sa.select(column).where(column == key).with_for_update()
    if connection.execute(lock).first():
        return
    same = {column.name: key}
    if kind == "postgresql":
        # The second transaction waits for the first one, and has the lock then.
        made = postgresql.insert(table).values(same)
        connection.execute(made.on_conflict_do_update(index_elements=[column], set_=same))
    else:
        _insert_committed(mysql.insert(table).values(same).prefix_with("IGNORE"))
        connection.execute(lock)


def _insert_committed(row: sa.Insert) -> None:
    """Insert a row that stays even if the transaction that is to lock it is rolled back.

    If it were rolled back with that transaction, MariaDB would report a deadlock among the others
    that wait to insert the same row.
    """
    with reader() as connection:  # The reader commits each statement by itself.
        connection.execute(row)

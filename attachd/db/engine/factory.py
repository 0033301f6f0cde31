# SPDX-License-Identifier: Apache-2.0
"""Creation of the engines for SQLite, MariaDB and PostgreSQL from [database].

Each process has two: the reader commits each statement by itself and so needs no BEGIN, COMMIT or
ROLLBACK; the writer runs transactions. An isolation level is set once per connection, so that a
transaction costs its own statements and one COMMIT, nothing else: no ping at the checkout
(retry.retried repeats a call that met a dead connection) and no ROLLBACK at the return
(session.writer has ended the transaction by then).
"""

from collections.abc import Mapping, Sequence
import functools
import inspect
import logging
import os
from typing import Any

from oslo_db.sqlalchemy import exc_filters
from pymysql import connections, protocol
import sqlalchemy as sa

from attachd.db.engine import timeouts
from attachd.db.engine.timeouts import Timeouts

SQLITE_BUSY_TIMEOUT = 30.0
"""Seconds that a process waits for the writer of another process."""

Arguments = dict[str, Any]

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
        cursor.close()
        if dialect == "postgresql":
            connection.commit()  # or what was set is undone with the first transaction


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
        connections.FieldDescriptorPacket = functools.lru_cache(CACHED_DESCRIPTIONS)(known)

# SPDX-License-Identifier: Apache-2.0
"""Connections to the database: reader, writer, retried; used by every module of db.

@api.retried
def rename(volume_id: str, name: str) -> None:
    with session.writer() as connection:
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
    """Give oslo.db's options our defaults; whoever generates sample configurations calls it too.

    A pool keeps as many connections as threads work at the same time.  What it does not keep is
    opened and closed for each use, which costs more than the use.
    """
    cfg.set_defaults(oslo_db_options.database_opts, max_pool_size=20)


set_defaults()
CONF.register_opts(oslo_db_options.database_opts, group="database")


_LOST_AT_COMMIT = (
    "The connection to the database was lost while a change was being stored. It may have been "
    "stored: look at the resource before you try again."
)


class Counters(NamedTuple):
    """What this process has done since it counts, over all threads, without BEGIN and COMMIT."""

    statements: int
    writing_transactions: int


Precondition = Callable[[sa.Connection], None]
"""What a caller has a transaction do before all else; raises to forbid it."""


@dataclasses.dataclass
class _Engines:
    """The engines of one process and what went through them."""

    reader: sa.Engine
    writer: sa.Engine
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    counts: bool = False
    statements: int = 0
    commits: int = 0

    def count(self) -> Counters:
        """Return what has been counted; the first call begins to count.

        SQLAlchemy spends a twentieth more on a request where somebody listens.
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
    """What a process has; a forked one starts anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engines: _Engines | None = None
        # A connection belongs to the process that opened it.  The child must not even close
        # it, which the server would take for the parent's good-bye: it is kept, unused.
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
            reason=f"The connection in [database] is of no use: {error}"
        ) from error
    if CONF.metrics.enabled:
        made.count()  # from the first statement on, before several threads use them
    return made


def dialect() -> str:
    """Return which SQL the configured database speaks: sqlite, mysql, mariadb or postgresql."""
    return _engines().writer.dialect.name


def display_url() -> str:
    """Return the URL of the configured database, without its password; for people."""
    return _engines().writer.url.render_as_string(hide_password=True)


def dispose() -> None:
    """Close all connections; the next use opens new ones, as [database] says by then."""
    with _process.lock:
        engines, _process.engines = _process.engines, None
    _close(engines)


def _close(engines: _Engines | None) -> None:
    if engines is not None:
        engines.reader.dispose()
        engines.writer.dispose()


@contextlib.contextmanager
def no_timeouts() -> Iterator[None]:
    """Wait in this process for as long as the database takes; a migration may take hours.

    Of several threads the first opens connections and the last closes them: who waits in a pool
    for a connection would wait in vain if it was closed on its way.
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
    """Return how many connections there are and who uses them; for people."""
    if (engines := _process.engines) is None:
        return ["No connection has been needed yet."]
    return [
        f"{name}: {engine.pool.status()}"
        for name, engine in (("reading", engines.reader), ("writing", engines.writer))
    ]


def counters() -> Counters:
    """Return what this process has sent to its database since it was asked for the first time.

    With metrics, everything is counted; else counting begins with the first call, which is better
    made while nobody else works, and again where the engines are made anew.
    """
    return _engines().count()


def reader() -> sa.Connection:
    """Lend a connection for reading: each statement sees what is committed by then.

    :returns: what gives it back at the end of its ``with``
    """
    return _connect(_engines().reader)


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
            _roll_back(connection, transaction)
            raise
        try:
            transaction.commit()
        except BaseException as error:
            # Whatever became of the transaction, nobody else gets to see what is left of it.
            connection.invalidate()
            if isinstance(error, db_exception.DBConnectionError):
                raise exception.Unavailable(reason=_LOST_AT_COMMIT) from error
            raise


def _roll_back(connection: sa.Connection, transaction: sa.RootTransaction) -> None:
    try:
        transaction.rollback()
    except (db_exception.DBError, sa.exc.SQLAlchemyError):
        # Why it had to be rolled back is what the caller wants to know.
        connection.invalidate()


def _connect(engine: sa.Engine) -> sa.Connection:
    try:
        return engine.connect()
    except db_exception.DBError:
        raise
    except (sa.exc.OperationalError, sa.exc.ResourceClosedError, NotImplementedError) as error:
        # Not everything that a server can answer to a log-in is known to oslo.db.  The others are
        # SQLAlchemy's when a connection is lost while it looks, once, at what the server can do.
        raise db_exception.DBConnectionError(error) from error
    except engine.dialect.loaded_dbapi.Error as error:
        # Neither of them sees what a driver raises while factory.py sets a connection up.
        raise db_exception.DBConnectionError(error) from error

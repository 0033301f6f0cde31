# SPDX-License-Identifier: Apache-2.0
"""Databases of a test's own, for every test that needs one.

``databases.use(self, "sqlite")`` in a setUp() configures the process for one with all tables
and no rows.  Its name is random, so that any number of processes may do so at the same time.
"""

from collections.abc import Callable
from concurrent import futures
from pathlib import Path
import shutil
import tempfile
import threading
from typing import Any
import unittest

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
import sqlalchemy as sa

from attachd.conf import CONF
from attachd.db import migration, migrations, models
from attachd.db.engine import session
from attachd.tests import machine, wait
from attachd.tests.lasting import Lasting

KINDS = ("sqlite", "mariadb", "postgresql")
QUOTAS = ("quota_volumes", "quota_gigabytes")


def url(test: unittest.TestCase, kind: str) -> str:
    """Return the URL of an empty database; for a process that is not this one."""
    if kind != "sqlite":
        return machine.need_database(test, kind)
    return _at(_place(test))


def synced(test: unittest.TestCase, kind: str) -> str:
    """Return the URL of a database on a server as ``attachd-manage db sync`` leaves an empty one.

    That it makes these tables is for tests of migrations to show; here it would only take longer.
    """
    made = url(test, kind)
    engine = sa.create_engine(made)
    with engine.begin() as connection:
        models.METADATA.create_all(connection)
        _begin(connection)
        scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
        MigrationContext.configure(connection).stamp(scripts, migration.HEAD)
    engine.dispose()
    return made


def _place(test: unittest.TestCase) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
    test.addCleanup(folder.cleanup)
    return Path(folder.name) / "attachd.sqlite"


def _at(path: Path) -> str:
    return f"sqlite:///{path}"


def use_empty(test: unittest.TestCase, kind: str) -> str:
    """Configure this process for a new database without tables and return its URL."""
    return _configure(test, url(test, kind))


def use(test: unittest.TestCase, kind: str = "sqlite") -> str:
    """Configure this process for a database with all tables, but no rows, and return its URL.

    Making tables takes longer than most tests do.  So all tests of this process share one on a
    server, emptied, and get copies of one of SQLite's.
    """
    if kind == "sqlite":
        return _use_copy(test)
    if kind in _lasting:
        lasting = _configure(test, _lasting[kind])
        with session.writer() as connection:
            for table in reversed(models.METADATA.sorted_tables):
                connection.execute(table.delete())
            _begin(connection)
        return lasting
    new = _without_tls(machine.need_database(Lasting(test), kind))
    _configure(test, new)
    _make_tables()
    _lasting[kind] = new
    return new


def _without_tls(url: str) -> str:
    """Keep PyMySQL from reading all CA certificates for each connection: 20 ms of a processor."""
    parsed = sa.make_url(url)
    if parsed.get_driver_name() == "pymysql":
        parsed = parsed.update_query_dict({"ssl_disabled": "true"})
    return parsed.render_as_string(hide_password=False)


def _use_copy(test: unittest.TestCase) -> str:
    if not _originals:
        original = _place(Lasting(test))
        _configure(test, _at(original))
        _make_tables()
        session.dispose()  # Who closes it last leaves all in the one file.
        _originals.append(original)
    copy = _place(test)
    shutil.copy(_originals[0], copy)
    return _configure(test, _at(copy))


def _make_tables() -> None:
    with session.writer() as connection:
        models.METADATA.create_all(connection)
        _begin(connection)


_originals: list[Path] = []
"""The SQLite database that this process copies, once there is one."""


def _begin(connection: sa.Connection) -> None:
    """Add what migrations add: the one row that is always there."""
    connection.execute(sa.insert(models.event_sequence), {"id": 1, "assigned": 0, "purged": 0})


_lasting: dict[str, str] = {}
"""The URLs of the databases on servers that this process removes at its end, by kind."""


_OPTIONS = {
    # A slow disk is no part of the claim; what a test shows holds with and without it.
    "sqlite_synchronous": False,
    # Nor is a slow machine, on which many wait for one row, or for a connection.
    "read_timeout": wait.TIMEOUT,
    "retry_timeout": wait.TIMEOUT,
    "pool_timeout": wait.TIMEOUT,
}
"""Options of [database] that are other than usual."""


def _configure(test: unittest.TestCase, connection: str) -> str:
    session.dispose()
    CONF.set_override("connection", connection, group="database")
    for option, value in _OPTIONS.items():
        CONF.set_override(option, value, group="database")
    # Except where one is set, there is no quota: many tests make many volumes.
    for option in QUOTAS:
        CONF.set_override(option, -1, group="quota")
    test.addCleanup(_reset)
    return connection


def _reset() -> None:
    session.dispose()
    for option in ("connection", *_OPTIONS):
        CONF.clear_override(option, group="database")
    for option in QUOTAS:
        CONF.clear_override(option, group="quota")


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions at the same moment, each in a thread; return results or exceptions."""
    start = threading.Barrier(len(functions), timeout=240)

    def call(function: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error

    with futures.ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))

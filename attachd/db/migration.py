# SPDX-License-Identifier: Apache-2.0
"""Creation and upgrade of the tables; used by attachd-manage and attachd-all-in-one."""

from collections.abc import Iterator
import contextlib
from typing import Any, TextIO

from alembic import command
from alembic import util as alembic_util
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db.engine import session
from attachd.db.engine.retry import retried

LOCK = "attachd-migration"
LOCK_TIMEOUT = 300
"""Seconds to wait while another process migrates the same database."""

HEAD = "head"

SCRIPTS = "attachd.db:migrations"
"""The package with Alembic's env.py and the migrations."""


def head() -> str:
    """Return the version that this code needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


@retried
def version() -> str | None:
    """Return the version of the database, or None if it is empty.

    :raises Unavailable: the database does not answer
    """
    with session.reader() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(target: str = HEAD) -> None:
    """Create or change the tables, in one transaction where the database supports that.

    An up-to-date database is not changed. Of several calls at the same time, one works and the
    others wait for it.

    :param target: a version, by default the newest; nothing is done if the database is newer
    :raises ConfigurationError: the database is newer than this code, or there is no such target
    :raises Conflict: a migration failed, as if the database has tables of other programs
    :raises Unavailable: the database does not answer
    """
    _check_known(version())
    if target != HEAD:
        _check_known(target)
    with session.no_timeouts():
        _upgrade(target)


@retried
def _upgrade(target: str) -> None:
    config = _config()
    # The lock outlives the transaction: the next process sees the committed changes.
    with session.reader() as holder, _alone(holder), session.writer() as connection:
        config.attributes["connection"] = connection
        current = MigrationContext.configure(connection).get_current_revision()
        for revision in _pending(config, current, target):
            _apply(config, revision)


def _pending(config: Config, current: str | None, target: str) -> list[str]:
    """Return the revisions between two versions, the oldest first; none if the first is newer."""
    script = ScriptDirectory.from_config(config)
    applied = (
        {walk_revision.revision for walk_revision in script.walk_revisions(head=current)}
        if current
        else ()
    )
    revisions = [walk_revision.revision for walk_revision in script.walk_revisions(head=target)]
    return [revision for revision in reversed(revisions) if revision not in applied]


def _apply(config: Config, revision: str) -> None:
    """Execute one migration; raises Conflict with its revision if it fails."""
    try:
        command.upgrade(config, revision)
    except (db_exception.DBConnectionError, db_exception.DBDeadlock):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise exception.Conflict(
            reason=f"The database could not be migrated to version {revision}: {reason}"
        ) from error


def write_sql(output: TextIO, start: str | None = None) -> None:
    """Write the SQL of an upgrade instead of executing it; the database is not used.

    :param start: the version that the database has; None if it is empty
    :raises ConfigurationError: there is no such version
    """
    _check_known(start)
    config = _config()
    config.output_buffer = output
    config.attributes["dialect"] = session.dialect()
    command.upgrade(config, f"{start or 'base'}:{HEAD}", sql=True)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    return config


def _check_known(version: str | None) -> None:
    if version is None:
        return
    try:
        ScriptDirectory.from_config(_config()).get_revision(version)
    except alembic_util.CommandError as error:
        raise exception.ConfigurationError(
            reason=f"This attachd does not know version {version} of the database; the newest "
            f"it knows is {head()}. A database that was used by a newer attachd needs that one."
        ) from error


@contextlib.contextmanager
def _alone(connection: sa.Connection) -> Iterator[None]:
    """Keep other migrations waiting; SQLite's transactions do that by themselves."""
    if connection.dialect.name == "sqlite":
        yield
        return
    take, give_back = _lock_functions(connection)
    if not connection.execute(sa.select(take)).scalar():
        raise exception.Unavailable(reason="Another process migrates this database.")
    try:
        yield
    finally:
        connection.execute(sa.select(give_back))


def _lock_functions(
    connection: sa.Connection,
) -> tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]]:
    """Return the expressions that acquire the lock, with the result, and release it."""
    if connection.dialect.name == "postgresql":
        key = sa.func.hashtext(LOCK)
        # It waits without a timeout and returns a void, which is not NULL.
        taken = sa.cast(sa.func.pg_advisory_lock(key), sa.Text).is_not(None)
        return taken, sa.func.pg_advisory_unlock(key)
    # In MariaDB a lock's name is the server's, not the database's.
    name = f"{LOCK}-{connection.engine.url.database}"[:64]
    return sa.func.get_lock(name, LOCK_TIMEOUT), sa.func.release_lock(name)

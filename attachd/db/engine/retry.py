# SPDX-License-Identifier: Apache-2.0
"""Retries of database calls, and translation of database errors."""

from collections.abc import Callable
import functools
import logging
import time
from typing import ParamSpec, TypeVar

from oslo_db import exception as db_exception
import sqlalchemy as sa
import tenacity

from attachd import exception
from attachd.conf import CONF

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

MAX_ATTEMPTS = 10
INITIAL_BACKOFF = 0.01
MAX_BACKOFF = 1.0
"""Seconds. A pause doubles and is random, so that callers that collided do not collide again. All
pauses together are about 2 seconds, the longest that a caller waits for an error. Where the
attempts themselves take long, [database]retry_timeout ends them."""

_TRANSIENT = (db_exception.DBConnectionError, db_exception.DBDeadlock)
_TRY_LATER = "Try again later."
_INVALID_VALUE = "A value cannot be stored: it is too long, or has characters that are no text."
_VALUE_ERRORS = (sa.exc.DataError, ValueError)
_OUTAGES = (sa.exc.OperationalError, sa.exc.InternalError)
"""Errors of a server, such as one that has become read-only, and of the connection to it."""
_MISSING_TABLE = frozenset({1146, "42P01"})
"""The error codes of MariaDB and PostgreSQL."""
_REFUSALS = {
    "is read-only": frozenset({1290, 1792, 1836, "25006", "SQLITE_READONLY"}),
    "has no space left": frozenset({1021, 1114, "53100", "SQLITE_FULL"}),
}
"""Why a server refuses to write, by the error codes of MariaDB, PostgreSQL and SQLite."""
_LOCK_NOT_AVAILABLE = "55P03"
"""The PostgreSQL code for what MariaDB's drivers, and oslo.db, report as a deadlock."""


def retried(function: Callable[P, R]) -> Callable[P, R]:
    """Retry transient database errors: deadlocks and lost connections; translate the others.

    The decorated function has to be one transaction. It has not happened when it is repeated: a
    server rolls back a transaction without a COMMIT, and a connection lost at the COMMIT itself is
    raised as DatabaseUnavailable by session.writer().

    :raises DatabaseUnavailable: the database does not answer, is too busy, or has no tables
    :raises BadRequest: the database cannot store a value
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        start = time.monotonic()
        try:
            return _call_translated(function, *args, **kwargs)
        except _TRANSIENT as error:
            attempt = functools.partial(_call_translated, function, *args, **kwargs)
            return _retry(attempt, error, start)

    return call


# The first attempt is made without tenacity, whose 8 microseconds a call are 2 % of the CPU of an
# attach cycle. oslo.db's wrap_db_retry has no timeout over all attempts, and logs a traceback at
# the last one.
_RETRYING = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(_TRANSIENT),
    wait=tenacity.wait_random_exponential(INITIAL_BACKOFF, MAX_BACKOFF),
    before_sleep=tenacity.before_sleep_log(LOG, logging.DEBUG),
    reraise=True,
)


def _retry(attempt: Callable[[], R], first_error: Exception, start: float) -> R:
    """Go on after a first attempt that failed.

    :param start: of the first attempt, on the monotonic clock
    """
    errors = [first_error]

    def next_attempt() -> R:
        if errors:
            raise errors.pop()
        return attempt()

    def is_exhausted(state: tenacity.RetryCallState) -> bool:
        timeout: float = CONF.database.retry_timeout
        return state.attempt_number >= MAX_ATTEMPTS or time.monotonic() - start >= timeout

    try:
        return _RETRYING.copy(stop=is_exhausted)(next_attempt)
    except _TRANSIENT as error:
        raise _retries_exhausted(error) from error


def _retries_exhausted(error: Exception) -> exception.DatabaseUnavailable:
    if isinstance(error, db_exception.DBDeadlock):
        return _unavailable(f"The database is too busy. {_TRY_LATER}", error)
    return _unavailable(f"The database does not answer. {_TRY_LATER}", error)


def _call_translated(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function and translate errors that a retry would not help against."""
    try:
        return function(*args, **kwargs)
    except _TRANSIENT:
        raise
    except db_exception.DBNonExistentDatabase as error:
        raise _unavailable(f"The database does not exist. {_TRY_LATER}", error) from error
    except sa.exc.TimeoutError as error:
        raise _unavailable(
            f"Too many requests wait for the database. {_TRY_LATER}", error
        ) from error
    except db_exception.DBInvalidUnicodeParameter as error:
        raise exception.BadRequest(reason=_INVALID_VALUE) from error
    except (db_exception.DBError, sa.exc.DBAPIError) as error:
        _translate(error)
        raise


def _translate(error: db_exception.DBError | sa.exc.DBAPIError) -> None:
    inner = error.inner_exception if isinstance(error, db_exception.DBError) else error
    if getattr(getattr(inner, "orig", None), "pgcode", None) == _LOCK_NOT_AVAILABLE:
        raise db_exception.DBDeadlock(error) from error
    if _is_missing_table(error, getattr(inner, "orig", None)):
        message = "The database lacks tables: run attachd-manage db sync."
        raise _unavailable(message, error) from error
    # A driver that cannot send a value, such as a NUL to PostgreSQL, raises ValueError.
    if isinstance(error, db_exception.DBDataError) or isinstance(inner, _VALUE_ERRORS):
        raise exception.BadRequest(reason=_INVALID_VALUE) from error
    if isinstance(inner, _OUTAGES):
        code = _code(getattr(inner, "orig", None))
        causes = (cause for cause, codes in _REFUSALS.items() if code in codes)
        cause = next(causes, "reports an operational error")
        raise _unavailable(f"The database {cause}. {_TRY_LATER}", error) from error


def _is_missing_table(error: Exception, original: BaseException | None) -> bool:
    if isinstance(error, db_exception.DBNonExistentTable):
        return True
    return _code(original) in _MISSING_TABLE


def _code(original: BaseException | None) -> str | int | None:
    """Return the error code of a driver's exception, as far as it has one."""
    for name in ("pgcode", "sqlite_errorname"):
        if code := getattr(original, name, None):
            return str(code)
    return next(iter(getattr(original, "args", ())), None)


def _unavailable(reason: str, error: Exception) -> exception.DatabaseUnavailable:
    text = " ".join(str(error).split()).partition(" [SQL: ")[0]
    LOG.warning("%s %s", reason, text)
    return exception.DatabaseUnavailable(reason=reason)

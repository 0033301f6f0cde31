# SPDX-License-Identifier: Apache-2.0
"""How long a database may keep us waiting, in the terms of each driver; used by engines.

A server that is gone refuses or resets connections, but one that is frozen, or behind a network
that is cut, says nothing at all.  So we end the waiting ourselves.  The server does the same for
its part: a transaction whose client has fallen silent would keep its locks for hours.
"""

from collections.abc import Callable, Mapping
import functools
import select
import time
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

Options = Any
"""CONF.database, or what has the same attributes."""


class Limits(NamedTuple):
    """Seconds.

    :ivar connect: that a connection may take
    :ivar answer: that a server may be silent
    """

    connect: int
    answer: int

    @property
    def lock(self) -> int:
        """Seconds that a statement may wait for locks: the server tells it before we give up."""
        return max(1, self.answer // 2)

    @property
    def idle(self) -> int:
        """Seconds that a client may be silent in the middle of a transaction."""
        return self.answer * 2


def of(options: Options) -> Limits:
    """Return the limits that are configured."""
    return Limits(options.connect_timeout, options.read_timeout)


def arguments(url: sa.URL, limits: Limits) -> dict[str, Any]:
    """Return what the driver's connect() is told, except what the URL tells it already."""
    made = _ARGUMENTS.get(url.get_driver_name(), _nothing)(limits)
    return {name: value for name, value in made.items() if name not in url.query}


def session(dialect: str, limits: Limits) -> list[str]:
    """Return the statements that have the server keep to them in one session."""
    if dialect == "postgresql":
        return [
            f"SET lock_timeout = '{limits.lock}s'",
            f"SET idle_in_transaction_session_timeout = '{limits.idle}s'",
        ]
    if dialect in {"mysql", "mariadb"}:
        # What is between /*M! and */ is a comment to all but MariaDB.
        of_mariadb = f"/*M!100306 , idle_transaction_timeout = {limits.idle} */"
        return [f"SET SESSION innodb_lock_wait_timeout = {limits.lock} {of_mariadb}"]
    return []


def _nothing(_limits: Limits) -> dict[str, Any]:
    return {}


def _of_mysql(limits: Limits) -> dict[str, Any]:
    return {
        "connect_timeout": limits.connect,
        "read_timeout": limits.answer,
        "write_timeout": limits.answer,
    }


def _of_libpq(limits: Limits) -> dict[str, Any]:
    # For a server whose machine is gone; one that is merely frozen still confirms what it gets.
    pause = max(1, limits.answer // 4)
    return {
        "connect_timeout": limits.connect,
        "tcp_user_timeout": limits.answer * 1000,
        "keepalives_idle": pause,
        "keepalives_interval": pause,
        "keepalives_count": 3,
    }


def _of_psycopg2(limits: Limits) -> dict[str, Any]:
    """Have psycopg2 wait by our function: of itself, it does so for ever."""
    return {**_of_libpq(limits), "connection_factory": _limited_connection(limits)}


_ARGUMENTS: Final[Mapping[str, Callable[[Limits], dict[str, Any]]]] = {
    "mysqldb": _of_mysql,
    "psycopg": _of_libpq,
    "psycopg2": _of_psycopg2,
    "pymysql": _of_mysql,
}


@functools.cache
def _limited_connection(limits: Limits) -> type:
    from psycopg2 import extensions  # noqa: PLC0415  where nobody uses it, it may be missing

    extensions.set_wait_callback(_wait)
    return type("Connection", (extensions.connection,), {"limits": limits})


def _wait(connection: Any) -> None:
    """Wait for PostgreSQL as psycopg2 would, but not for ever.

    psycopg2 closes the connection when this raises.  While a connection is made, libpq leaves it
    to us to keep to connect_timeout.

    :param connection: of psycopg2; of one without ``limits`` nothing is asked

    Source: psycopg2, "Support for coroutine libraries".
    """
    from psycopg2 import OperationalError, extensions  # noqa: PLC0415

    limits: Limits | None = getattr(connection, "limits", None)
    deadline = None
    poll = select.poll()
    while (state := connection.poll()) != extensions.POLL_OK:
        if deadline is None and limits is not None:
            deadline = time.monotonic() + _seconds(connection, limits)
        events = select.POLLIN if state == extensions.POLL_READ else select.POLLOUT
        poll.register(connection.fileno(), events)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not poll.poll(None if left is None else left * 1000):
            raise OperationalError("timeout expired: the server has been silent for too long")


def _seconds(connection: Any, limits: Limits) -> float:
    from psycopg2 import extensions  # noqa: PLC0415

    if connection.status != extensions.STATUS_SETUP:
        return limits.answer
    return float(extensions.parse_dsn(connection.dsn).get("connect_timeout", limits.connect))

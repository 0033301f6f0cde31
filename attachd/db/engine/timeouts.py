# SPDX-License-Identifier: Apache-2.0
"""Timeouts of database connections, in the terms of each driver; used by session.py.

A server that is down refuses or resets connections, but a server that is frozen, or behind a
network that is cut, sends nothing at all. So the client ends the waiting. The server does the same
on its side: a transaction whose client is silent would keep its locks for hours.
"""

from collections.abc import Callable, Mapping
import functools
import select
import time
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

Options = Any
"""CONF.database, or an object with the same attributes."""


class Timeouts(NamedTuple):
    """Seconds.

    :ivar connect: that a connection may take
    :ivar answer: that a server may be silent
    """

    connect: int
    answer: int

    @property
    def lock(self) -> int:
        """Seconds that a statement may wait for locks: the server reports it before the client
        gives up.
        """
        return max(1, self.answer // 2)

    @property
    def idle(self) -> int:
        """Seconds that a client may be silent inside a transaction."""
        return self.answer * 2


def from_options(options: Options) -> Timeouts:
    """Return the configured timeouts."""
    return Timeouts(options.connect_timeout, options.read_timeout)


def connect_args(url: sa.URL, limits: Timeouts) -> dict[str, Any]:
    """Return the arguments of the driver's connect(), without those that the URL has."""
    made = _ARGUMENTS.get(url.get_driver_name(), _no_args)(limits)
    return {name: value for name, value in made.items() if name not in url.query}


def session_statements(dialect: str, limits: Timeouts) -> list[str]:
    """Return the statements that set the timeouts of the server for one session."""
    if dialect == "postgresql":
        return [
            f"SET lock_timeout = '{limits.lock}s'",
            f"SET idle_in_transaction_session_timeout = '{limits.idle}s'",
        ]
    if dialect in {"mysql", "mariadb"}:
        # What is between /*M! and */ is a comment to all servers but MariaDB.
        of_mariadb = f"/*M!100306 , idle_transaction_timeout = {limits.idle} */"
        return [f"SET SESSION innodb_lock_wait_timeout = {limits.lock} {of_mariadb}"]
    return []


def _no_args(_limits: Timeouts) -> dict[str, Any]:
    return {}


def _mysql_args(limits: Timeouts) -> dict[str, Any]:
    return {
        "connect_timeout": limits.connect,
        "read_timeout": limits.answer,
        "write_timeout": limits.answer,
    }


def _libpq_args(limits: Timeouts) -> dict[str, Any]:
    # For a server whose machine is down; a frozen server still acknowledges packets.
    pause = max(1, limits.answer // 4)
    return {
        "connect_timeout": limits.connect,
        "tcp_user_timeout": limits.answer * 1000,
        "keepalives_idle": pause,
        "keepalives_interval": pause,
        "keepalives_count": 3,
    }


def _psycopg2_args(limits: Timeouts) -> dict[str, Any]:
    """Have psycopg2 wait by our callback: by itself it waits without a timeout."""
    return {**_libpq_args(limits), "connection_factory": _connection_class(limits)}


_ARGUMENTS: Final[Mapping[str, Callable[[Timeouts], dict[str, Any]]]] = {
    "mysqldb": _mysql_args,
    "psycopg": _libpq_args,
    "psycopg2": _psycopg2_args,
    "pymysql": _mysql_args,
}


@functools.cache
def _connection_class(limits: Timeouts) -> type:
    from psycopg2 import extensions  # noqa: PLC0415  an optional dependency

    extensions.set_wait_callback(_wait_callback)
    return type("Connection", (extensions.connection,), {"limits": limits})


def _wait_callback(connection: Any) -> None:
    """Wait for PostgreSQL as psycopg2 would, but with a timeout.

    psycopg2 closes the connection when this raises. While a connection is made, libpq leaves
    connect_timeout to this callback.

    :param connection: of psycopg2; without an attribute ``limits`` there is no timeout

    Source: psycopg2, "Support for coroutine libraries".
    """
    from psycopg2 import OperationalError, extensions  # noqa: PLC0415

    limits: Timeouts | None = getattr(connection, "limits", None)
    deadline = None
    poll = select.poll()
    while (state := connection.poll()) != extensions.POLL_OK:
        if deadline is None and limits is not None:
            deadline = time.monotonic() + _timeout_of(connection, limits)
        events = select.POLLIN if state == extensions.POLL_READ else select.POLLOUT
        poll.register(connection.fileno(), events)
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not poll.poll(None if remaining is None else remaining * 1000):
            raise OperationalError("timeout expired: the server has been silent for too long")


def _timeout_of(connection: Any, limits: Timeouts) -> float:
    from psycopg2 import extensions  # noqa: PLC0415

    if connection.status != extensions.STATUS_SETUP:
        return limits.answer
    return float(extensions.parse_dsn(connection.dsn).get("connect_timeout", limits.connect))

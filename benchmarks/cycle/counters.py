# SPDX-License-Identifier: Apache-2.0
"""How many statements, transactions and calls there were, counted from the outside.

Used by attach_cycle.py: a counter is read before and after a run.  Each says how it counts,
and so what it may have counted besides.
"""

import abc
from collections import Counter
from collections.abc import Mapping
import json
from pathlib import Path
import re
import shutil
import socket
import subprocess
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

STATEMENTS = "sql statements"
WRITES = "writing transactions"
CALLS = "rpc calls"

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
AMQP_PORT = 5672

FUNCTIONS = ("function calls of the API", "function calls of the manager")

Counts = Mapping[str, int]


class NotCountable(Exception):
    """Why something cannot be counted here."""


class Source(abc.ABC):
    """Something that counts.

    :cvar how: for each quantity, how it was obtained, in a sentence
    """

    how: Mapping[str, str]

    @abc.abstractmethod
    def read(self) -> Counts:
        """Return the counters as they are now.

        Quantities are :data:`STATEMENTS`, :data:`WRITES` and :data:`CALLS`; other keys are
        details of these, for the curious.
        """


class _Database(Source):
    def __init__(self, url: sa.URL) -> None:
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
        self._connection = engine.connect()

    def _rows(self, statement: str) -> list[Any]:
        return list(self._connection.exec_driver_sql(statement))


class MariaDb(_Database):
    """Counts by the server's status variables."""

    how: Mapping[str, str] = {
        STATEMENTS: "differences of SHOW GLOBAL STATUS LIKE 'Com_%' without begin, commit and "
        "rollback, for the whole server",
        WRITES: "difference of Com_commit: transactions ended by a COMMIT, for the whole server; "
        "statements that commit themselves are not in it",
    }
    _FRAME = frozenset({"begin", "commit", "rollback", "show_status"})

    def read(self) -> Counts:
        """Read Com_*, one per kind of statement."""
        found = self._rows("SHOW GLOBAL STATUS LIKE 'Com\\_%%'")
        kinds = {name.removeprefix("Com_").lower(): int(value) for name, value in found}
        # These are counted again, one by one, by others.
        for total in ("stmt_execute", "stmt_prepare", "stmt_close", "admin_commands"):
            kinds.pop(total, None)
        counts = {
            STATEMENTS: sum(value for kind, value in kinds.items() if kind not in self._FRAME),
            WRITES: kinds["commit"],
        }
        details = {f"sql {kind}": value for kind, value in kinds.items() if kind != "show_status"}
        return {**counts, **details}


class PostgreSql(_Database):
    """Counts by pg_stat_statements where it is loaded, and by transaction ids."""

    def __init__(self, url: sa.URL) -> None:
        super().__init__(url)
        writes = (
            "transaction ids drawn, which a transaction does when it first writes or locks a "
            "row, for the whole server"
        )
        self.how = {WRITES: writes}
        loaded = self._rows("SELECT 1 FROM pg_extension WHERE extname = 'pg_stat_statements'")
        if loaded:
            self.how[STATEMENTS] = (
                "sum of calls in pg_stat_statements for this database, without BEGIN, COMMIT "
                "and ROLLBACK"
            )

    def read(self) -> Counts:
        """Read the next transaction id and, if there, the calls."""
        drawn = self._rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        counts = {WRITES: int(drawn[0][0])}
        if STATEMENTS in self.how:
            found = self._rows(
                "SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s JOIN pg_database d"
                " ON d.oid = s.dbid WHERE d.datname = current_database()"
                " AND s.query !~* '^(BEGIN|COMMIT|ROLLBACK)' AND s.query !~ 'pg_s'"
            )
            counts[STATEMENTS] = int(found[0][0])
        return counts


class RabbitMq(Source):
    """Counts by the broker's own counters, asked for with rabbitmqctl.

    rabbitmqctl asks the node RABBITMQ_NODENAME, or that of this machine.

    :param url: of the broker that attachd uses
    """

    how: Mapping[str, str] = {
        CALLS: "half the difference of the broker's messages_received_total (a call and its "
        "answer are two), for the whole broker"
    }

    def __init__(self, url: str) -> None:
        found = shutil.which("rabbitmqctl", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
        if found is None:
            raise NotCountable("there is no rabbitmqctl on this machine")
        self._program = found
        parsed = urlsplit(url)
        port = parsed.port or AMQP_PORT
        if parsed.hostname not in LOCAL or port not in self._ports():
            raise NotCountable(
                f"the node that rabbitmqctl asks does not listen on {parsed.hostname}:{port}; "
                "RABBITMQ_NODENAME names another one of this machine"
            )
        self.read()

    def _ports(self) -> list[int]:
        listeners = "[P || {listener,_,_,_,_,P,_} <- rabbit_networking:active_listeners()]."
        found: list[int] = json.loads(self._ask(listeners, r"\[[\d,\s]*\]"))
        return found

    def _ask(self, expression: str, pattern: str) -> str:
        done = subprocess.run(  # noqa: S603  a fixed command
            [self._program, "eval", expression],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found = re.search(pattern, done.stdout)
        if found is None:
            raise NotCountable("rabbitmqctl failed: " + (done.stderr or done.stdout)[:200])
        return found.group()

    def read(self) -> Counts:
        """Ask the broker."""
        received = self._ask(
            "rabbit_global_counters:overview().", r"messages_received_total\s*=>\s*\d+"
        )
        messages = int(received.rpartition(">")[2])
        return {CALLS: messages // 2, "messages to the broker": messages}


class Own(Source):
    """Counts what counted.py counts inside the process that it runs."""

    how: Mapping[str, str] = {
        **dict.fromkeys(FUNCTIONS, "cProfile in each thread that works on requests"),
        STATEMENTS: "attachd's own count of what goes to the cursors of its database driver, "
        "without BEGIN",
        WRITES: "attachd's own count of COMMITs on its writing connections",
        CALLS: "a count of the messages that the in-process transport was asked to wait for",
    }

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Counts:
        """Ask the process."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.connect(str(self._path))
            text = b"".join(iter(lambda: asked.recv(4096), b""))
        found: dict[str, int] = json.loads(text)
        return found


def of_database(url: str) -> Source:
    """Return a counter for the database server that attachd uses.

    :raises NotCountable: it is none that can be asked from outside
    """
    parsed = sa.make_url(url)
    kind = parsed.get_backend_name()
    try:
        if kind in {"mysql", "mariadb"}:
            return MariaDb(parsed)
        if kind == "postgresql":
            return PostgreSql(parsed)
    except sa.exc.SQLAlchemyError as error:
        raise NotCountable(f"the database does not let itself be asked: {error}") from error
    raise NotCountable(f"{kind} keeps no count that could be read from outside")


def difference(before: Counts, after: Counts) -> Counter[str]:
    """Return how much each count has grown."""
    return Counter({name: value - before.get(name, 0) for name, value in after.items()})

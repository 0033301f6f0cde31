# SPDX-License-Identifier: Apache-2.0
"""What a test needs of the machine it runs on; for tests with real tools and servers.

A need that is not met skips the test and says why.  Where the environment variable ``CI`` is
set, it fails instead: there, a test that did not run proves nothing.
"""

from collections.abc import Callable
import ctypes
import os
from pathlib import Path
import shutil
import socket
import subprocess
import time
from typing import NoReturn
import unittest
import uuid
import weakref

import sqlalchemy as sa

_SERVERS = {
    "mariadb": ("ATTACHD_TEST_MARIADB", "mysql+pymysql://root@127.0.0.1:3306/"),
    "postgresql": ("ATTACHD_TEST_POSTGRESQL", "postgresql+psycopg2://postgres@127.0.0.1:5432/"),
    "rabbitmq": ("ATTACHD_TEST_RABBITMQ", "rabbit://guest:guest@127.0.0.1:5672/"),
}


ENOUGH = 6 * 60
"""Seconds before the end of all tests in which none begins that starts processes."""
LEAST = 2.5 * 60
"""Seconds before it in which none begins that needs a database."""

_begun: "weakref.WeakKeyDictionary[unittest.TestCase, float]" = weakref.WeakKeyDictionary()


def need_time(test: unittest.TestCase, seconds: float = ENOUGH) -> None:
    """Go on only while there is time for what takes long.

    All steps of ``tools/check.py`` share some time, which ends when ``ATTACHD_TEST_UNTIL`` says,
    in seconds since 1970.  A machine that is too slow to run everything by then leaves out what
    it has not begun, and says so, in CI as well: it had better prove the rest than nothing.  What
    has begun goes on, however often it asks.
    """
    until = os.environ.get("ATTACHD_TEST_UNTIL")
    if until is None or _begun.get(test, 0.0) >= seconds:
        return
    if float(until) - time.time() < seconds:
        test.skipTest(
            "This machine is slow: no time was left for this test. Run it by name, as in: "
            "tox -e functional -- NAME"
        )
    _begun[test] = seconds


def need_tool(test: unittest.TestCase, name: str) -> str:
    """Return the path of the command ``name``, which may be a daemon: /usr/sbin counts."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    return shutil.which(name, path=path) or _lacking(test, f"the command {name} is missing")


def need_root(test: unittest.TestCase) -> None:
    """Go on only as root."""
    if os.geteuid() != 0:
        _lacking(test, "only root can do this")


def need_device(test: unittest.TestCase, path: str) -> None:
    """Go on only where ``path`` exists and may be written, such as /dev/fuse."""
    if not os.access(path, os.W_OK):
        _lacking(test, f"{path} is missing or may not be used")


def need_folder(test: unittest.TestCase, path: Path) -> None:
    """Go on only where the folder exists, such as /sys/module/loop."""
    if not path.is_dir():
        _lacking(test, f"the folder {path} is missing")


def need_library(test: unittest.TestCase, name: str) -> None:
    """Go on only where the shared library can be loaded, such as libiscsi.so.7."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        _lacking(test, f"the library {name} is missing: {error}")


def need_commit(test: unittest.TestCase, top: Path, commit: str) -> None:
    """Go on only where the tree is a clone of the repository which has the commit.

    :param top: the tree
    """
    command = [need_tool(test, "git"), "-C", str(top), "-c", f"safe.directory={top}"]
    asked = [*command, "cat-file", "-e", f"{commit}^{{commit}}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    if found.returncode:
        _lacking(test, f"commit {commit} is not here: {found.stderr.strip()}")


def need_server(test: unittest.TestCase, kind: str) -> str:
    """Return the URL of a running server that tests may use as its administrator.

    :param kind: mariadb, postgresql or rabbitmq; the environment variables
        ``ATTACHD_TEST_MARIADB``, ``ATTACHD_TEST_POSTGRESQL`` and ``ATTACHD_TEST_RABBITMQ``
        replace the URLs of the servers as Debian sets them up on 127.0.0.1
    """
    variable, default = _SERVERS[kind]
    url = os.environ.get(variable, default)
    parts = sa.engine.make_url(url)
    try:
        socket.create_connection((parts.host, parts.port), timeout=60).close()
    except OSError as error:
        _lacking(test, f"no {kind} at {parts.host}:{parts.port} (set {variable}): {error}")
    return url


def need_database(test: unittest.TestCase, kind: str) -> str:
    """Return the URL of an empty database of the test's own, dropped when the test is over.

    :param kind: mariadb or postgresql
    """
    server = sa.engine.make_url(need_server(test, kind))
    name = f"attachd_test_{uuid.uuid4().hex[:12]}"
    create, drop = _DATABASE_DDL[kind]
    _administer(server, create(name))
    test.addCleanup(_administer, server, drop(name))
    return server.set(database=name).render_as_string(hide_password=False)


_DATABASE_DDL: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "mariadb": (
        lambda name: f"CREATE DATABASE {name} CHARACTER SET utf8mb4",
        lambda name: f"DROP DATABASE {name}",
    ),
    "postgresql": (
        lambda name: f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0",
        # FORCE ends the connections that a killed process left behind.
        lambda name: f"DROP DATABASE {name} WITH (FORCE)",
    ),
}


def _administer(server: sa.URL, statement: str) -> None:
    engine = sa.create_engine(server, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)


def _lacking(test: unittest.TestCase, reason: str) -> NoReturn:
    if os.environ.get("CI"):
        test.fail(f"CI is set, so this may not be skipped: {reason}")
    test.skipTest(reason)
    raise AssertionError("skipTest raises")

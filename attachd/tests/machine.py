# SPDX-License-Identifier: Apache-2.0
"""What a test needs of the machine it runs on; for tests with real tools and servers.

A need that is not met skips the test and says why.  Where the environment variable ``CI`` is
set, it fails instead: there, a test that did not run proves nothing.
"""

from collections.abc import Callable
import ctypes
import fcntl
import functools
import os
from pathlib import Path
import shutil
import socket
import subprocess
import tempfile
from typing import NoReturn
import unittest
import uuid

import sqlalchemy as sa

_ACCOUNT = "openstack_citest:openstack_citest"
"""User and password that tools/test-setup.sh makes on the database servers."""

_SERVERS = {
    "mariadb": ("ATTACHD_TEST_MARIADB", f"mysql+pymysql://{_ACCOUNT}@127.0.0.1:3306/"),
    "postgresql": (
        "ATTACHD_TEST_POSTGRESQL",
        f"postgresql+psycopg2://{_ACCOUNT}@127.0.0.1:5432/postgres",
    ),
    "rabbitmq": ("ATTACHD_TEST_RABBITMQ", "rabbit://guest:guest@127.0.0.1:5672/"),
}


def need_tool(test: unittest.TestCase, name: str) -> str:
    """Return the path of the command ``name``, which may be a daemon: /usr/sbin counts."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    return shutil.which(name, path=path) or _lacking(test, f"the command {name} is missing")


def need_root(test: unittest.TestCase) -> None:
    """Go on only as root."""
    if os.geteuid() != 0:
        _lacking(test, "only root can do this")


def need_mount_namespaces(test: unittest.TestCase) -> None:
    """Go on only where namespaces of mounts work: / is a mount, and not a folder of a chroot.

    A new namespace has a copy of each mount, which keeps its device in use.  Until this test ends,
    no test that called share_mounts() runs.
    """
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    if not any(line.split()[4] == "/" for line in lines):
        _lacking(test, "/ is no mount, but a folder of a chroot")
    _lock_mounts(test, fcntl.LOCK_EX)


def share_mounts(test: unittest.TestCase) -> None:
    """Let no test copy the mounts of this one until it ends; see need_mount_namespaces()."""
    _lock_mounts(test, fcntl.LOCK_SH)


_mount_locks: dict[str, int] = {}
"""File descriptors of locked folders, by the ids of tests."""


def _lock_mounts(test: unittest.TestCase, mode: int) -> None:
    """Lock the folder of temporary files; a lock that the test has already is converted."""
    if test.id() not in _mount_locks:
        _mount_locks[test.id()] = os.open(tempfile.gettempdir(), os.O_RDONLY | os.O_CLOEXEC)
        test.addCleanup(lambda: os.close(_mount_locks.pop(test.id())))
    fcntl.flock(_mount_locks[test.id()], mode)


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
        replace the URLs of the servers on 127.0.0.1 with the account of tools/test-setup.sh
    """
    variable, default = _SERVERS[kind]
    url = os.environ.get(variable, default)
    if reason := _unusable(kind, url):
        place = url.rpartition("@")[2].strip("/")
        _lacking(test, f"{kind} at {place} cannot be used (set {variable}): {reason}")
    return url


@functools.cache
def _unusable(kind: str, url: str) -> str:
    """Return why a server cannot be used, "" if it can."""
    parts = sa.engine.make_url(url)
    try:
        if kind == "rabbitmq":
            socket.create_connection((parts.host, parts.port), timeout=60).close()
        else:
            engine = sa.create_engine(parts, poolclass=sa.NullPool)
            engine.connect().close()
    except (OSError, sa.exc.SQLAlchemyError) as error:
        return str(getattr(error, "orig", None) or error)
    return ""


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

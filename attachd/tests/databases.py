# SPDX-License-Identifier: Apache-2.0
"""Databases of a test's own, for every test that needs one.

``databases.use(self, "sqlite")`` in a setUp() makes one, new and with a random name,
configures the process for it, and removes it when the test is over.
"""

from collections.abc import Callable
from concurrent import futures
from pathlib import Path
import tempfile
import threading
from typing import Any
import unittest

from attachd.conf import CONF
from attachd.db import api, models
from attachd.tests import machine

KINDS = ("sqlite", "mariadb", "postgresql")


def url(test: unittest.TestCase, kind: str) -> str:
    """Return the URL of an empty database; for a process that is not this one."""
    if kind != "sqlite":
        return machine.need_database(test, kind)
    folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
    test.addCleanup(folder.cleanup)
    return f"sqlite:///{Path(folder.name) / 'attachd.sqlite'}"


def use_empty(test: unittest.TestCase, kind: str) -> str:
    """Configure this process for a new, empty database and return its URL."""
    new = url(test, kind)
    api.dispose()
    CONF.set_override("connection", new, group="database")
    # A slow disk is no part of the claim; what a test shows holds with and without it.
    CONF.set_override("sqlite_synchronous", False, group="database")
    test.addCleanup(_reset)
    return new


def use(test: unittest.TestCase, kind: str = "sqlite") -> str:
    """Configure this process for a new database with all tables and return its URL."""
    new = use_empty(test, kind)
    with api.writer() as connection:
        models.METADATA.create_all(connection)
    return new


def _reset() -> None:
    api.dispose()
    CONF.clear_override("connection", group="database")
    CONF.clear_override("sqlite_synchronous", group="database")


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions at the same moment, each in a thread; return results or exceptions."""
    start = threading.Barrier(len(functions), timeout=60)

    def call(function: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error

    with futures.ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))

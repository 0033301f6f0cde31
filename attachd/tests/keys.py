# SPDX-License-Identifier: Apache-2.0
"""Key files of a test's own, and what the database really has; for tests of sealed secrets."""

from pathlib import Path
import tempfile
from typing import Any
import unittest

import sqlalchemy as sa

from attachd.db.engine import session
from attachd.db.secrets import encryption, key_file
from attachd.tests import backends


def folder(test: unittest.TestCase) -> Path:
    """Make a folder, which is removed after the test."""
    made = tempfile.TemporaryDirectory(prefix="attachd-test-")
    test.addCleanup(made.cleanup)
    return Path(made.name)


def use(test: unittest.TestCase) -> Path:
    """Have this process seal with a key of its own until the test is over; return the file."""
    file = folder(test) / "secrets.keys"
    key_file.create(str(file))
    configure(test, file)
    return file


def configure(test: unittest.TestCase, file: Path | None) -> None:
    """Have this process read this key file until the test is over, or none."""
    test.addCleanup(encryption.reset)
    backends.override(test, "key_file", None if file is None else str(file), "secrets")
    encryption.reset()


def ids(file: Path) -> list[str]:
    """Return the ids of the keys of a file, in its order."""
    return list(key_file.read(str(file)).by_id)


def lose(file: Path) -> None:
    """Replace all keys of a file by a new one, as somebody does who has no copy."""
    file.unlink()
    key_file.create(str(file))
    encryption.reset()


def stored(column: str) -> list[Any]:
    """Return what the database has in a column of attachments, oldest first."""
    with session.reader() as connection:
        found = connection.execute(
            sa.text(f"SELECT {column} FROM attachments ORDER BY created_at")
        )
        return [row[0] for row in found]


def tampered(text: str) -> str:
    """Return a sealed value with one letter that is another one."""
    return text[:-20] + ("A" if text[-20] != "A" else "B") + text[-19:]

# SPDX-License-Identifier: Apache-2.0
"""Key and value pairs of the tables of metadata of volumes and snapshots: limits, insertion,
copies.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception

MAX_PAIRS: Final = 256
"""As many as one request may have."""
MAX_BYTES: Final = 2**20
"""Of all keys and values in UTF-8; those of images have up to 64 KiB each."""


def check(resource: str, pairs: Mapping[str, str]) -> None:
    """Check the pairs that a resource would have.

    :param resource: its description for the message, such as "Volume 42"
    :raises BadRequest: they are too many, or too large
    """
    if len(pairs) > MAX_PAIRS:
        raise exception.BadRequest(
            reason=f"{resource} would have {len(pairs)} metadata keys and may have {MAX_PAIRS}. "
            "Delete some first."
        )
    size = sum(len(text.encode()) for pair in pairs.items() for text in pair)
    if size > MAX_BYTES:
        raise exception.BadRequest(
            reason=f"{resource} would have {size} bytes of metadata and may have {MAX_BYTES}. "
            "Delete some first, or set shorter values."
        )


def insert(
    connection: sa.Connection, table: sa.Table, owner: Mapping[str, str], pairs: Mapping[str, str]
) -> None:
    """Insert pairs that are not there yet.

    :param owner: the column with the id of the volume or snapshot, and the id
    :raises BadRequest: the database takes two keys as equal
    """
    if not pairs:
        return
    rows = [{**owner, "key": key, "value": value} for key, value in pairs.items()]
    try:
        connection.execute(sa.insert(table), rows)
    except db_exception.DBDuplicateEntry as error:
        # MariaDB compares "a" and "a " as equal.
        raise exception.BadRequest(
            reason="Two metadata keys differ only in blanks at their ends."
        ) from error


class Pairs(NamedTuple):
    """The pairs of one volume or snapshot: the column with its id, and the id."""

    column: sa.Column[str]
    id: str


def copy(connection: sa.Connection, source: Pairs, target: Pairs) -> None:
    """Copy the pairs of a volume or snapshot to another one, which has just been stored."""
    table = source.column.table
    copied = sa.select(sa.literal(target.id), table.c.key, table.c.value)
    connection.execute(
        sa.insert(target.column.table).from_select(
            [target.column.name, "key", "value"], copied.where(source.column == source.id)
        )
    )

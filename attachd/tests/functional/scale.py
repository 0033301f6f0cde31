# SPDX-License-Identifier: Apache-2.0
"""A database of 50,000 volumes and 100,000 attachments, filled by itself in seconds; and what a
server tells of how it finds rows.  For test_scale.
"""

from collections.abc import Iterator
import contextlib
from typing import Any
import unittest

import sqlalchemy as sa
from sqlalchemy import schema

from attachd.db import models
from attachd.db.engine import session
from attachd.tests import databases

VOLUMES = 50_000
ATTACHMENTS = 2 * VOLUMES
LARGE_PROJECT = "a" * 32
"""Has half of all volumes; each of 250 others, p0 to p249, has 100."""
SMALL_PROJECT = "p7"
USER = "u7"

_SERIES = {
    "mariadb": "(SELECT seq AS n FROM seq_1_to_{count}) AS s",
    "postgresql": "generate_series(1, {count}) AS s(n)",
}
_MOMENT = {
    "mariadb": "timestampadd(SECOND, {seconds}, TIMESTAMP'2026-01-01 00:00:00')",
    "postgresql": "timestamp '2026-01-01 00:00:00' + {seconds} * interval '1 second'",
}
_ANALYZE = {
    "mariadb": "ANALYZE TABLE volumes, volume_metadata, volume_image_metadata, attachments",
    "postgresql": "ANALYZE",
}


def _uuid(kind: str, number: str) -> str:
    """Return SQL for a UUID that looks drawn, and is always the same."""
    digits = f"md5(concat('{kind}', {number}))"
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    listed = ", '-', ".join(f"substr({digits}, {start}, {size})" for start, size in parts)
    return f"concat({listed})"


_PROJECT = f"CASE WHEN mod({{n}}, 2) = 0 THEN '{LARGE_PROJECT}' ELSE {{small}} END"


def _project(number: str) -> str:
    small = f"concat('p', mod({number} // 2, 250))"
    return _PROJECT.format(n=number, small=small)


def _volumes() -> dict[str, str]:
    return {
        "id": _uuid("volume", "n"),
        "project_id": _project("n"),
        "user_id": "concat('u', mod(n, 500))",
        "name": "concat('disk-', n // 5)",
        "description": "concat('number ', n)",
        "size_gib": "1 + mod(n, 100)",
        "state": "CASE WHEN mod(n, 100) = 1 THEN 'error' ELSE 'ready' END",
        "status": "CASE WHEN mod(n, 100) = 1 THEN 'error' ELSE 'in-use' END",
        "attach_status": "'attached'",
        "multiattach": "mod(n, 10) = 0",
        "bootable": "mod(n, 20) = 0",
        "volume_type_id": _uuid("type", "mod(n, 5)"),
        "availability_zone": "concat('zone-', mod(n, 3))",
        "host": "concat('storage-', mod(n, 50), '@fast#pool')",
        "provider": "'{}'",
        "admin_metadata": "'{}'",
        "created_at": "{moment}",
        "updated_at": "{moment}",
    }


def _attachments() -> dict[str, str]:
    volume = "((n + 1) // 2)"
    return {
        "id": _uuid("attachment", "n"),
        "volume_id": _uuid("volume", volume),
        "project_id": _project(volume),
        "user_id": "'u'",
        "instance_uuid": _uuid("server", "n // 10"),
        "state": "CASE WHEN mod(n, 100) = 1 THEN 'reserved' ELSE 'attached' END",
        "mode": "'rw'",
        "host": "concat('compute-', mod(n, 1000))",
        "mountpoint": "'/dev/vdb'",
        "connector": """'{"host": "compute"}'""",
        "connection_info": """'{"driver_volume_type": "local", "data": {}}'""",
        "generation": "1",
        "created_at": "{moment}",
        "updated_at": "{moment}",
    }


def _pairs(kind: str) -> dict[str, str]:
    return {
        "volume_id": _uuid("volume", "2 * n"),
        "key": f"'{kind}'",
        "value": "concat('value-', mod(n, 1000))",
    }


def _types() -> dict[str, str]:
    return {
        "id": _uuid("type", "n - 1"),
        "name": "concat('type-', n - 1)",
        "is_public": "n > 0",
        "extra_specs": "'{}'",
        "created_at": "{moment}",
    }


_CONTENT = (
    ("volume_types", 5, _types()),
    ("volumes", VOLUMES, _volumes()),
    ("volume_metadata", VOLUMES // 2, _pairs("use")),
    ("volume_image_metadata", VOLUMES // 4, _pairs("os_type")),
    ("attachments", ATTACHMENTS, _attachments()),
)


def use(owner: unittest.TestCase, kind: str) -> None:
    """Configure this process for a database of many rows, until its owner cleans up.

    :param kind: mariadb or postgresql
    """
    databases.use_empty(owner, kind)
    with session.writer() as connection:
        tables = models.METADATA.sorted_tables
        for table in tables:
            connection.execute(schema.CreateTable(table))
        for name, count, columns in _CONTENT:
            connection.exec_driver_sql(_fill(kind, name, count, columns))
        # Indexes of rows that are there already are made several times as fast.
        for index in sorted((each for table in tables for each in table.indexes), key=str):
            connection.execute(schema.CreateIndex(index))
    with session.reader() as connection:
        connection.exec_driver_sql(_ANALYZE[kind])


def _fill(kind: str, table: str, count: int, columns: dict[str, str]) -> str:
    columns = {**_defaults(models.METADATA.tables[table]), **columns}
    quote = "`{}`" if kind == "mariadb" else '"{}"'
    names = ", ".join(quote.format(name) for name in columns)
    moment = _MOMENT[kind].format(seconds="n")
    divide = "DIV" if kind == "mariadb" else "/"
    values = ", ".join(columns.values()).replace("{moment}", moment).replace("//", divide)
    series = _SERIES[kind].format(count=count)
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {series}".replace("%", "%%")


def _defaults(table: sa.Table) -> dict[str, str]:
    """Return what the columns are that every row has, in SQL, as far as that is plain."""
    return {
        column.name: _literal(column)
        for column in table.c
        if not column.nullable and column.default is not None and column.default.is_scalar
    }


def _literal(column: sa.Column[Any]) -> str:
    default: Any = column.default
    if isinstance(column.type, sa.Boolean):
        return str(bool(default.arg)).lower()
    return f"'{default.arg}'" if isinstance(column.type, sa.String) else str(default.arg)


@contextlib.contextmanager
def recorded() -> Iterator[list[tuple[str, Any]]]:
    """Collect the statements that this process sends meanwhile, with their parameters."""
    found: list[tuple[str, Any]] = []

    def keep(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        found.append((statement, parameters))

    sa.event.listen(sa.Engine, "before_cursor_execute", keep)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", keep)


def explained(statement: str, parameters: Any) -> list[dict[str, Any]]:
    """Return how MariaDB would find the rows of a statement, table by table."""
    with session.reader() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
        return [dict(row._mapping) for row in rows]


@contextlib.contextmanager
def reads() -> Iterator[list[int]]:
    """Count the rows that MariaDB reads meanwhile, in tables and indexes; one number in the end.

    This thread's reader has one connection, whose session is asked before and after.
    """
    count: list[int] = []
    before = _rows_read()
    yield count
    count.append(_rows_read() - before)


def _rows_read() -> int:
    with session.reader() as connection:
        rows = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler\\_read\\_%%'")
        return sum(int(value) for _name, value in rows)

# SPDX-License-Identifier: Apache-2.0
"""What the columns of the tables are made of; used by models.py and by what stores rows."""

import datetime
import json
from typing import Any
import uuid

from oslo_utils import timeutils
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

ERROR_LENGTH = 1023
Uuid = sa.String(36)
Moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
"""UTC without a zone, to the microsecond: lists are sorted by it."""
BigNumber = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""Of a row that is numbered as it comes; in SQLite every integer is big, and only this one counts
by itself."""
LongText = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Json(sa.TypeDecorator[Any]):
    """Any JSON value, kept as text: MariaDB's own JSON refuses what is nested 32 deep.

    The text is ASCII, so that even half a surrogate pair, or a NUL, which JSON allows, is
    stored and read as it came.  None is NULL.
    """

    impl = LongText
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        """Turn a value into JSON text."""
        return None if value is None else _to_json(value)

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        """Turn JSON text into a value."""
        return None if value is None else json.loads(value)


# Strings differ also when only case or accents do, as on the other databases.
IN_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def now() -> datetime.datetime:
    """Return the present moment as the tables store it."""
    return timeutils.utcnow()


def new_id() -> str:
    """Draw the id of a new row."""
    return str(uuid.uuid4())


def shortened(error: str | None) -> str | None:
    """Cut an error's text to what its column holds; names of files in it may be no text."""
    return error and error.encode(errors="backslashreplace").decode()[:ERROR_LENGTH]


def times() -> tuple[sa.Column[datetime.datetime], sa.Column[datetime.datetime]]:
    """Return the columns that say when a row was made and changed."""
    return (
        sa.Column("created_at", Moment, nullable=False, default=now),
        sa.Column("updated_at", Moment, onupdate=now),
    )

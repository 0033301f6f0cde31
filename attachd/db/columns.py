# SPDX-License-Identifier: Apache-2.0
"""The types of the columns, and what MariaDB needs to know of each table."""

import functools
import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from attachd.db.secrets import encryption
from attachd.db.secrets.encryption import Encrypted

Uuid = sa.String(36)
Moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
"""UTC without a zone, to the microsecond: lists are sorted by it."""
AutoIncrementId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""The id of a row that the database numbers; in SQLite only an INTEGER is numbered automatically.
"""
LongText = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Json(sa.TypeDecorator[Any]):
    """Any JSON value, stored as text: MariaDB's own JSON type refuses 32 levels of nesting.

    The text is ASCII, so that half a surrogate pair and a NUL, which JSON allows, are read as they
    were stored. None is NULL.
    """

    impl = LongText
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        """Convert a value to JSON text."""
        return None if value is None else _to_json(value)

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        """Convert JSON text to a value."""
        return None if value is None else json.loads(value)


_ENCRYPTED_LENGTH = 255


class EncryptedJson(Json):
    """Any JSON value, stored as encrypted text; None is NULL."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        """Encrypt a value, which is an encryption.Bound unless it is encrypted already."""
        if isinstance(value, Encrypted):
            return value.text
        if value is None:
            return None
        text = super().process_bind_param(value.value, dialect)
        if text is None:
            return None
        return encryption.encrypt(text, value.column, value.row_id, value.table)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        """Return a value, or its encrypted form."""
        read = super().process_result_value
        if value is not None and _is_protected(value):
            return Encrypted(value, functools.partial(read, _dialect=dialect))
        return read(value, dialect)


class EncryptedText(sa.TypeDecorator[Any]):
    """A short encrypted text: up to 64 characters; None is NULL."""

    impl = sa.String(_ENCRYPTED_LENGTH)
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        """Encrypt a text, which is an encryption.Bound unless it is encrypted already."""
        if isinstance(value, Encrypted):
            return value.text
        if value is None:
            return None
        return encryption.encrypt(value.value, value.column, value.row_id, value.table)

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        """Return a text, or its encrypted form."""
        if value is not None and _is_protected(value):
            return Encrypted(value, str)
        return value


def _is_protected(text: str) -> bool:
    """Return whether encryption.decrypt() has to check a value when it is used."""
    return encryption.is_encrypted(text) or encryption.is_plain_text_refused()


# Strings are compared by case and accents, as in the other databases.
MARIADB_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

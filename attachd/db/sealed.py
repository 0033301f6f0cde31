# SPDX-License-Identifier: Apache-2.0
"""Columns whose values are sealed; used by models.py.

What they return to who reads a row is a :class:`attachd.db.sealing.Sealed`, which is opened where
it is needed, by :func:`attachd.db.sealing.opened`; what was stored unsealed is returned as it is.
"""

import functools
from typing import Any

import sqlalchemy as sa

from attachd.db import sealing
from attachd.db.columns import Json
from attachd.db.sealing import Sealed

_LENGTH = 255
_FORMER_LENGTH = 64


class SealedJson(Json):
    """Any JSON value, kept as text that is sealed; None is NULL."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        """Seal a value."""
        if isinstance(value, Sealed):
            return value.text
        text = super().process_bind_param(value, dialect)
        return None if text is None else sealing.seal(text)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        """Return a value, or what opens it."""
        read = super().process_result_value
        if value is not None and sealing.is_sealed(value):
            return Sealed(value, functools.partial(read, _dialect=dialect))
        return read(value, dialect)


class SealedText(sa.TypeDecorator[Any]):
    """A short text that is sealed: up to 64 characters; None is NULL."""

    # SQLite keeps a text of any length, and would have to copy the table to change what it says.
    impl = sa.String(_LENGTH).with_variant(sa.String(_FORMER_LENGTH), "sqlite")
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        """Seal a text."""
        if isinstance(value, Sealed):
            return value.text
        return None if value is None else sealing.seal(value)

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        """Return a text, or what opens it."""
        if value is not None and sealing.is_sealed(value):
            return Sealed(value, str)
        return value

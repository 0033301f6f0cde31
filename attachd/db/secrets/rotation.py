# SPDX-License-Identifier: Apache-2.0
"""What is sealed by which key, and sealing all of it by the first one; used by attachd-manage key.

Services go on meanwhile.  Each row is a transaction of its own, which replaces what was read if it
is still that, and locks nothing else: it is never in the way of those that lock a volume first.
"""

from collections import Counter
from collections.abc import Mapping
import dataclasses
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.secrets import encryption, key_file

ENCRYPTED_COLUMNS: Final = ("connection_info", "secret")
"""The columns of attachments that are sealed."""

BATCH: Final = 200
"""Rows that are read at a time."""

NO_KEY: Final = ""
"""Stands for the key of what is not sealed."""

# As the database has it: what is written does not touch updated_at, by which recovery goes.
_SECRETS = sa.table(
    models.attachments.name,
    sa.column("id"),
    *(sa.column(name, sa.Text) for name in ENCRYPTED_COLUMNS),
)


@dataclasses.dataclass
class Outcome:
    """What a rotation did.

    :ivar sealed: how many values were sealed anew
    :ivar changed: rows that somebody else changed at the same time, and that were left to them
    :ivar unreadable: why a row cannot be opened, by the ids of attachments
    """

    sealed: int = 0
    changed: int = 0
    unreadable: dict[str, str] = dataclasses.field(default_factory=dict)


class _StaleRow(NamedTuple):
    id: str
    values: Mapping[str, str]


@retried
def count_by_key() -> dict[str, int]:
    """Return how many values there are by key, :data:`NO_KEY` for what is not sealed."""
    counts: Counter[str] = Counter()
    with session.reader() as connection:
        for name in ENCRYPTED_COLUMNS:
            column = _SECRETS.c[name]
            name_of_key = sa.func.substr(column, len(encryption.MARK) + 1, key_file.ID_LENGTH)
            is_sealed = column.like(f"{encryption.MARK}%")
            key = sa.case((is_sealed, name_of_key), else_=NO_KEY).label("key")
            statement = sa.select(key, sa.func.count()).where(column.is_not(None)).group_by(key)
            for row in connection.execute(statement):
                counts[row[0]] += row[1]
    return dict(counts)


def rotate() -> Outcome:
    """Seal anew by the first key what is not, or by another one; from the start each time.

    :raises ConfigurationError: there is no key file, or it is not in order
    :raises Unavailable: the database does not answer; what was done until then stays done
    """
    keys = encryption.keys()
    if keys is None:
        raise exception.ConfigurationError(reason=encryption.NOT_ENCRYPTED)
    outcome, last = Outcome(), ""
    while rows := _list_stale(last, keys.first):
        for row in rows:
            _reencrypt(row, outcome)
        last = rows[-1].id
    return outcome


def _reencrypt(row: _StaleRow, outcome: Outcome) -> None:
    try:
        new = {name: encryption.encrypt(_decrypted(text)) for name, text in row.values.items()}
    except exception.SecretUnreadable as error:
        outcome.unreadable[row.id] = str(error)
        return
    if _swap(row, new):
        outcome.sealed += len(new)
    else:
        outcome.changed += 1


def _decrypted(text: str) -> str:
    return encryption.decrypt(text) if encryption.is_encrypted(text) else text


@retried
def _list_stale(last: str, first: str) -> list[_StaleRow]:
    """Return the next rows with something that the first key has not sealed."""
    own = f"{encryption.prefix(first)}%"
    statement = (
        sa.select(_SECRETS)
        .where(
            _SECRETS.c.id > last,
            sa.or_(*(_SECRETS.c[name].not_like(own) for name in ENCRYPTED_COLUMNS)),
        )
        .order_by(_SECRETS.c.id)
        .limit(BATCH)
    )
    with session.reader() as connection:
        return [
            _needs_reencryption(dict(row._mapping), first) for row in connection.execute(statement)
        ]


def _needs_reencryption(row: Mapping[str, Any], first: str) -> _StaleRow:
    own = encryption.prefix(first)
    values = {
        name: row[name]
        for name in ENCRYPTED_COLUMNS
        if row[name] and not row[name].startswith(own)
    }
    return _StaleRow(row["id"], values)


@retried
def _swap(row: _StaleRow, new: Mapping[str, str]) -> bool:
    """Replace what was read, unless it is something else by now."""
    unchanged = [_SECRETS.c[name] == text for name, text in row.values.items()]
    with session.writer() as connection:
        result = connection.execute(
            sa.update(_SECRETS).where(_SECRETS.c.id == row.id, *unchanged).values(new)
        )
        return bool(result.rowcount == 1)

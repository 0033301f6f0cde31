# SPDX-License-Identifier: Apache-2.0
"""Re-encryption of all secrets with the first key, and their numbers by key; used by
attachd-manage key.

Services keep running meanwhile. Each row is a transaction of its own, which replaces a value if it
is still the one that was read, and locks nothing else: it does not block transactions that lock a
volume first.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.secrets import encryption, key_file

BATCH: Final = 200
"""Rows that are read at a time."""

NO_KEY: Final = ""
"""Stands for the key of plain text."""

# The columns as stored: a rotation does not change updated_at, which recovery uses.
_SECRETS = {
    table: sa.table(table, sa.column("id"), *(sa.column(name, sa.Text) for name in columns))
    for table, columns in encryption.COLUMNS.items()
}


@dataclasses.dataclass
class Outcome:
    """The result of a rotation; it is complete if all values are encrypted and bound.

    :ivar encrypted: how many values were encrypted again
    :ivar changed: rows that were changed at the same time, and skipped
    :ivar unreadable: why a row cannot be decrypted, by the ids of attachments
    :ivar unreadable_volumes: the same, by the ids of volumes
    :ivar unreadable_snapshots: the same, by the ids of snapshots
    """

    encrypted: int = 0
    changed: int = 0
    unreadable: dict[str, str] = dataclasses.field(default_factory=dict)
    unreadable_volumes: dict[str, str] = dataclasses.field(default_factory=dict)
    unreadable_snapshots: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether no value was left as it was."""
        left = (self.unreadable, self.unreadable_volumes, self.unreadable_snapshots)
        return not (self.changed or any(left))

    def find_unreadable(self, table: str) -> dict[str, str]:
        """Return the unreadable rows of a table."""
        return {
            encryption.VOLUMES: self.unreadable_volumes,
            encryption.SNAPSHOTS: self.unreadable_snapshots,
        }.get(table, self.unreadable)


class _StaleRow(NamedTuple):
    table: str
    id: str
    values: Mapping[str, str]


@retried
def count_by_key() -> dict[str, int]:
    """Return the number of values by key, :data:`NO_KEY` for plain text."""
    counts: Counter[str] = Counter()
    with session.reader() as connection:
        for column in (table.c[name] for table, name in _columns()):
            name_of_key = sa.func.substr(column, len(encryption.MARK) + 1, key_file.ID_LENGTH)
            is_encrypted = sa.or_(
                column.like(f"{encryption.MARK}%"), column.like(f"{encryption.FORMER_MARK}%")
            )
            key = sa.case((is_encrypted, name_of_key), else_=NO_KEY).label("key")
            statement = sa.select(key, sa.func.count()).where(column.is_not(None)).group_by(key)
            for row in connection.execute(statement):
                counts[row[0]] += row[1]
    return dict(counts)


def _columns() -> Iterator[tuple[sa.TableClause, str]]:
    for table, columns in encryption.COLUMNS.items():
        yield from ((_SECRETS[table], name) for name in columns)


def rotate() -> Outcome:
    """Encrypt all values with the first key that are not, from the start each time.

    A value of the former format is encrypted again, bound to its row.

    :raises ConfigurationError: there is no key file, or it is invalid
    :raises Unavailable: the database does not answer; what was done until then stays done
    """
    keys = encryption.keys()
    if keys is None:
        raise exception.ConfigurationError(reason=encryption.NOT_ENCRYPTED)
    outcome = Outcome()
    for table in encryption.COLUMNS:
        last = ""
        while rows := _list_stale(table, last, keys.first):
            for row in rows:
                _reencrypt(row, outcome)
            last = rows[-1].id
    return outcome


def _reencrypt(row: _StaleRow, outcome: Outcome) -> None:
    try:
        new = {
            name: encryption.encrypt(
                encryption.decrypt(text, name, row.id, row.table), name, row.id, row.table
            )
            for name, text in row.values.items()
        }
    except exception.SecretUnreadable as error:
        outcome.find_unreadable(row.table)[row.id] = str(error)
        return
    if _swap(row, new):
        outcome.encrypted += len(new)
    else:
        outcome.changed += 1


@retried
def _list_stale(table: str, last: str, first: str) -> list[_StaleRow]:
    """Return the next rows with a value that the first key has not encrypted."""
    own, stored = f"{encryption.prefix(first)}%", _SECRETS[table]
    statement = (
        sa.select(stored)
        .where(
            stored.c.id > last,
            sa.or_(*(stored.c[name].not_like(own) for name in encryption.COLUMNS[table])),
        )
        .order_by(stored.c.id)
        .limit(BATCH)
    )
    return [_needs_reencryption(table, row, first) for row in session.fetch_all(statement)]


def _needs_reencryption(table: str, row: Mapping[str, Any], first: str) -> _StaleRow:
    own = encryption.prefix(first)
    values = {
        name: row[name]
        for name in encryption.COLUMNS[table]
        if row[name] and not row[name].startswith(own)
    }
    return _StaleRow(table, row["id"], values)


@retried
def _swap(row: _StaleRow, new: Mapping[str, str]) -> bool:
    """Replace the values that were read, unless they have changed."""
    stored = _SECRETS[row.table]
    unchanged = [stored.c[name] == text for name, text in row.values.items()]
    change = sa.update(stored).where(stored.c.id == row.id, *unchanged).values(new)
    return session.write(change) == 1

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
from attachd.db import api, models, seal_keys, sealing

COLUMNS: Final = ("connection_info", "secret")
"""The columns of attachments that are sealed."""

BATCH: Final = 200
"""Rows that are read at a time."""

NO_KEY: Final = ""
"""Stands for the key of what is not sealed."""

# As the database has it: what is written does not touch updated_at, by which recovery goes.
_T = sa.table(
    models.attachments.name, sa.column("id"), *(sa.column(name, sa.Text) for name in COLUMNS)
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


class _Stale(NamedTuple):
    id: str
    values: Mapping[str, str]


@api.retried
def counts() -> dict[str, int]:
    """Return how many values there are by key, :data:`NO_KEY` for what is not sealed."""
    found: Counter[str] = Counter()
    with api.reader() as connection:
        for name in COLUMNS:
            column = _T.c[name]
            name_of_key = sa.func.substr(column, len(sealing.MARK) + 1, seal_keys.ID_LENGTH)
            is_sealed = column.like(f"{sealing.MARK}%")
            key = sa.case((is_sealed, name_of_key), else_=NO_KEY).label("key")
            wanted = sa.select(key, sa.func.count()).where(column.is_not(None)).group_by(key)
            for row in connection.execute(wanted):
                found[row[0]] += row[1]
    return dict(found)


def rotate() -> Outcome:
    """Seal anew by the first key what is not, or by another one; from the start each time.

    :raises ConfigurationError: there is no key file, or it is not in order
    :raises Unavailable: the database does not answer; what was done until then stays done
    """
    keys = sealing.keys()
    if keys is None:
        raise exception.ConfigurationError(reason=sealing.NOT_SEALED)
    outcome, last = Outcome(), ""
    while rows := _stale_after(last, keys.first):
        for row in rows:
            _seal_anew(row, outcome)
        last = rows[-1].id
    return outcome


def _seal_anew(row: _Stale, outcome: Outcome) -> None:
    try:
        new = {name: sealing.seal(_opened(text)) for name, text in row.values.items()}
    except exception.SecretUnreadable as error:
        outcome.unreadable[row.id] = str(error)
        return
    if _swap(row, new):
        outcome.sealed += len(new)
    else:
        outcome.changed += 1


def _opened(text: str) -> str:
    return sealing.unseal(text) if sealing.is_sealed(text) else text


@api.retried
def _stale_after(last: str, first: str) -> list[_Stale]:
    """Return the next rows with something that the first key has not sealed."""
    own = f"{sealing.prefix(first)}%"
    wanted = (
        sa.select(_T)
        .where(_T.c.id > last, sa.or_(*(_T.c[name].not_like(own) for name in COLUMNS)))
        .order_by(_T.c.id)
        .limit(BATCH)
    )
    with api.reader() as connection:
        return [_stale(dict(row._mapping), first) for row in connection.execute(wanted)]


def _stale(row: Mapping[str, Any], first: str) -> _Stale:
    own = sealing.prefix(first)
    found = {name: row[name] for name in COLUMNS if row[name] and not row[name].startswith(own)}
    return _Stale(row["id"], found)


@api.retried
def _swap(row: _Stale, new: Mapping[str, str]) -> bool:
    """Replace what was read, unless it is something else by now."""
    unchanged = [_T.c[name] == text for name, text in row.values.items()]
    with api.writer() as connection:
        done = connection.execute(sa.update(_T).where(_T.c.id == row.id, *unchanged).values(new))
        return bool(done.rowcount == 1)

# SPDX-License-Identifier: Apache-2.0
"""The idempotency_keys table: ties a request to the one resource that it creates; used by the API.

A key's row is stored before the resource, with the resource's id. The transaction that creates the
resource begins with :meth:`IdempotencyClaim.note`: so of any number of runs of one request, at the
same time or after the death of a process, one creates the resource, and none does after a refusal.
"""

from collections.abc import Mapping
import dataclasses
import datetime
from typing import Any, Final, NamedTuple

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import IdempotencyKeyRow

_IDEMPOTENCY_KEYS = models.idempotency_keys
_UNDECIDED = _IDEMPOTENCY_KEYS.c.status.is_(None)
_TRIES: Final = 5


class AlreadyMade(Exception):
    """Another run of the same request has created the resource, or has stored an answer."""


class KeyRecord(NamedTuple):
    """The stored state of a key.

    :ivar fingerprint: of the request that it was used with first
    :ivar resource_id: of the resource that the request creates
    :ivar made: whether it has been created
    :ivar status: of the final answer; None: there is none yet
    :ivar answer: the stored part of the answer
    :ivar repeated: whether the key was known before
    """

    fingerprint: str
    resource_id: str
    made: bool
    status: int | None
    answer: Any
    repeated: bool


@dataclasses.dataclass
class IdempotencyClaim:
    """The right of one run of a request to create its resource, or to continue with it.

    :ivar repeated: an earlier run may have created it
    :ivar made: a run has created it; if it does not exist, it has been deleted
    :ivar held: this run has created it, or has found it
    """

    digest: str
    resource_id: str
    repeated: bool = False
    made: bool = False
    held: bool = False

    def note(self, connection: sa.Connection) -> None:
        """Record the creation of the resource, first in the transaction that creates it.

        :raises AlreadyMade: it was created, or there is an answer
        """
        _set_made(connection, self, made=True)

    def release(self) -> None:
        """Allow the resource to be created anew, before it is given up.

        :raises AlreadyMade: it had not been created, or there is an answer
        """
        _store_made(self, made=False)

    def take_back(self) -> None:
        """Undo :meth:`release`: the resource has not been given up; raises as :meth:`release`."""
        _store_made(self, made=True)


def claim(digest: str, fingerprint: str, kept_for: float) -> KeyRecord:
    """Store the use of a key, or return its stored state.

    :param digest: of the key and its owner
    :param fingerprint: of the request
    :param kept_for: seconds from the first use on
    """
    for _ in range(_TRIES):
        moment = models.now()
        resource_id = models.new_id()
        row = {
            "digest": digest,
            "fingerprint": fingerprint,
            "resource_id": resource_id,
            "made": False,
            "expires_at": moment + datetime.timedelta(seconds=kept_for),
            "created_at": moment,
        }
        if _insert(row):
            return KeyRecord(fingerprint, resource_id, False, None, None, False)
        record = get(digest)
        if record is not None:
            return record
        _delete_expired(digest)
    raise exception.Unavailable(reason="The Idempotency-Key is in use. Try again.")


@retried
def _insert(row: Mapping[str, Any]) -> bool:
    try:
        session.write(sa.insert(_IDEMPOTENCY_KEYS).values(row))
    except db_exception.DBDuplicateEntry:
        return False
    return True


@retried
def get(digest: str) -> KeyRecord | None:
    """Return the stored state of a key; None: none, or expired."""
    statement = sa.select(_IDEMPOTENCY_KEYS).where(
        _IDEMPOTENCY_KEYS.c.digest == digest, _IDEMPOTENCY_KEYS.c.expires_at > models.now()
    )
    row = session.fetch_one(statement, IdempotencyKeyRow)
    if row is None:
        return None
    return KeyRecord(
        row["fingerprint"], row["resource_id"], row["made"], row["status"], row["answer"], True
    )


@retried
def _delete_expired(digest: str) -> None:
    old = sa.and_(
        _IDEMPOTENCY_KEYS.c.digest == digest, _IDEMPOTENCY_KEYS.c.expires_at <= models.now()
    )
    session.write(sa.delete(_IDEMPOTENCY_KEYS).where(old))


def _set_made(connection: sa.Connection, claim: IdempotencyClaim, *, made: bool) -> None:
    # Since the key expired, another request may have used it.
    ours = sa.and_(
        _IDEMPOTENCY_KEYS.c.digest == claim.digest,
        _IDEMPOTENCY_KEYS.c.resource_id == claim.resource_id,
    )
    waiting = sa.and_(ours, _UNDECIDED, _IDEMPOTENCY_KEYS.c.made.is_(not made))
    result = connection.execute(sa.update(_IDEMPOTENCY_KEYS).where(waiting).values(made=made))
    if result.rowcount != 1:
        raise AlreadyMade


@retried
def _store_made(claim: IdempotencyClaim, *, made: bool) -> None:
    with session.writer() as connection:
        _set_made(connection, claim, made=made)


@retried
def refuse(digest: str, status: int, answer: Any) -> bool:
    """Store a refusal as the answer, unless the resource was created or there is an answer.

    :returns: whether it is the answer
    """
    return _decide(
        sa.and_(
            _IDEMPOTENCY_KEYS.c.digest == digest, _UNDECIDED, _IDEMPOTENCY_KEYS.c.made.is_(False)
        ),
        status,
        answer,
    )


@retried
def finish(digest: str, status: int, answer: Any) -> bool:
    """Store the answer of a successful run, unless there is one.

    :returns: whether it is the answer
    """
    return _decide(sa.and_(_IDEMPOTENCY_KEYS.c.digest == digest, _UNDECIDED), status, answer)


def _decide(which: sa.ColumnElement[bool], status: int, answer: Any) -> bool:
    change = sa.update(_IDEMPOTENCY_KEYS).where(which).values(status=status, answer=answer)
    return session.write(change) == 1


@retried
def purge(limit: int) -> int:
    """Remove expired keys, at most so many; return how many."""
    has_expired = _IDEMPOTENCY_KEYS.c.expires_at < models.now()
    return session.delete_some(_IDEMPOTENCY_KEYS.c.digest, has_expired, limit)

# SPDX-License-Identifier: Apache-2.0
"""Encryption of secrets before they are stored, and the key ring of a process.

An encrypted value names its format and key: ``encrypted:2:KEY:TOKEN``, a Fernet token. The
encrypted text begins with a digest of the row and the column, so that a value that was moved
cannot be decrypted; format 1 had no digest. A value without that prefix was stored by a process
without keys, as plain text. Rows are read without decryption: see :class:`Encrypted`.
"""

from collections.abc import Callable, Mapping
import dataclasses
import hashlib
import hmac
import json
import threading
import time
from typing import Any, Final

from cryptography import fernet
from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db.secrets import key_file
from attachd.db.secrets.key_file import OPTION, Keys, Signature

LOG = log.getLogger(__name__)

MARK: Final = "encrypted:2:"
"""No JSON begins like this, and no generated secret."""

FORMER_MARK: Final = "encrypted:1:"
"""Of values that are not bound to their row."""

ATTACHMENTS: Final = "attachments"
VOLUMES: Final = "volumes"
SNAPSHOTS: Final = "snapshots"
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    ATTACHMENTS: ("connection_info", "secret", "provider_secrets"),
    VOLUMES: ("provider_secrets",),
    SNAPSHOTS: ("provider_secrets",),
}
"""The encrypted columns of each table."""

_REMEDIES: Final = {
    ATTACHMENTS: "Delete the attachment, and connect again.",
    VOLUMES: "Restore the volume's row from a backup of the database.",
    SNAPSHOTS: "Restore the snapshot's row from a backup of the database.",
}

_DIGEST_LENGTH: Final = 16

CHECK_INTERVAL: Final = 2.0
"""Seconds after which a process checks whether its key file has changed."""

NOT_ENCRYPTED: Final = (
    f"{OPTION} is not set: secrets of connections are stored in the database as plain text."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Encrypted:
    """An encrypted value of a row that has not been decrypted; stored again, it stays as it is.

    :ivar text: as stored
    :ivar read: converts the decrypted text
    """

    text: str = dataclasses.field(repr=False)
    read: Callable[[str], Any] = dataclasses.field(repr=False, compare=False)

    def opened(self, column: str, row_id: str, table: str) -> Any:
        """Return the value of a column of a row; raises SecretUnreadable."""
        return self.read(decrypt(self.text, column, row_id, table))


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """A value that is to be encrypted for one column of one row."""

    value: Any = dataclasses.field(repr=False)
    column: str
    row_id: str
    table: str


def bind(values: Mapping[str, Any], row_id: str, table: str = ATTACHMENTS) -> dict[str, Any]:
    """Return the values of a row, with those of encrypted columns bound to it.

    :param values: by column; one that was read encrypted stays as it is
    """
    columns = COLUMNS[table]
    return {
        name: Bound(value, name, row_id, table)
        if name in columns and value is not None and not isinstance(value, Encrypted | Bound)
        else value
        for name, value in values.items()
    }


def protect(value: Any, column: str, row_id: str, table: str = ATTACHMENTS) -> Any:
    """Return a JSON value as its column is to store it: encrypted, or as it is without keys.

    It can also be sent in this form to other processes with the keys.
    """
    if _key_ring.current() is None:
        return value
    return Encrypted(encrypt(json.dumps(value), column, row_id, table), json.loads)


def decrypted(row: Mapping[str, Any], column: str, table: str = ATTACHMENTS) -> Any:
    """Return the value of a column of a row that may be encrypted.

    :param row: with its ``id``
    :raises SecretUnreadable: its key is missing, it is damaged, or of another row or column
    """
    value = row[column]
    return value.opened(column, row["id"], table) if isinstance(value, Encrypted) else value


def is_encrypted(text: str) -> bool:
    """Return whether a text is a result of :func:`encrypt`, of this format or the former one."""
    return text.startswith((MARK, FORMER_MARK))


def first_key_id() -> str | None:
    """Return the id of the key that encrypts; None: there is none."""
    keys = _key_ring.current()
    return None if keys is None else keys.first


def is_plain_text_refused() -> bool:
    """Return whether the key file says that all values are encrypted and bound to their rows."""
    keys = _key_ring.current()
    return keys is not None and keys.encrypted_only


def _digest(column: str, row_id: str, table: str) -> bytes:
    return hashlib.sha256(f"{table}.{column}.{row_id}".encode()).digest()[:_DIGEST_LENGTH]


def prefix(key: str) -> str:
    """Return the prefix of all values that are encrypted by a key.

    :param key: its id
    """
    return f"{MARK}{key}:"


def encrypt(text: str, column: str, row_id: str, table: str = ATTACHMENTS) -> str:
    """Return the encrypted form of a text for one column of one row; without keys the text."""
    keys = _key_ring.current()
    if keys is None:
        return text
    content = _digest(column, row_id, table) + text.encode()
    return prefix(keys.first) + keys.by_id[keys.first].encrypt(content).decode()


def decrypt(text: str, column: str, row_id: str, table: str = ATTACHMENTS) -> str:
    """Return the plain text of a column of a row.

    :raises SecretUnreadable: the key is missing, or the value is damaged, of another row or
        column, or not encrypted where all values have to be
    """
    kind = table.removesuffix("s")
    if not text.startswith(MARK) and is_plain_text_refused():
        LOG.error("%s %s: %s is not encrypted for this row", kind.title(), row_id, column)
        raise exception.SecretUnreadable(
            reason=f"The secrets of this {kind} are not encrypted for it in the database, "
            f"although all were before. {_REMEDIES[table]}"
        )
    if not is_encrypted(text):
        return text
    name, _, token = text[len(MARK) :].partition(":")
    try:
        content = _key(name, table).decrypt(token.encode())
        if text.startswith(FORMER_MARK):
            return content.decode()
        if hmac.compare_digest(content[:_DIGEST_LENGTH], _digest(column, row_id, table)):
            return content[_DIGEST_LENGTH:].decode()
    except (fernet.InvalidToken, ValueError):
        raise exception.SecretUnreadable(
            reason=f"The secrets of this {kind} were encrypted with key {name}, and have been "
            f"damaged in the database. {_REMEDIES[table]}"
        ) from None
    LOG.error("%s %s: %s was encrypted for another row or column", kind.title(), row_id, column)
    raise exception.SecretUnreadable(
        reason=f"The secrets of this {kind} are those of another one: they were moved in the "
        f"database. {_REMEDIES[table]}"
    )


def _key(name: str, table: str) -> fernet.Fernet:
    keys = _key_ring.current()
    if keys is None or name not in keys.by_id:
        keys = _key_ring.current(at_once=True)
    if keys is None:
        raise _unreadable(
            name, table, f"and {OPTION} is not set. Set it to the file with that key"
        )
    if name not in keys.by_id:
        path = CONF.secrets.key_file
        why = f"which is not in {path} ({OPTION}). Put it back into that file"
        raise _unreadable(name, table, why)
    return keys.by_id[name]


def _unreadable(name: str, table: str, why: str) -> exception.SecretUnreadable:
    kind = table.removesuffix("s")
    lost = "; if it is lost, delete the attachment, and connect again" * (table == ATTACHMENTS)
    return exception.SecretUnreadable(
        reason=f"The secrets of this {kind} are encrypted with key {name}, {why}{lost}."
    )


def keys() -> Keys | None:
    """Read the keys of this process again and return them; None: there is no key file.

    :raises ConfigurationError: the file is invalid
    """
    reset()
    return _key_ring.current()


def start() -> None:
    """Read the key file when a process starts, and warn if there is none.

    :raises ConfigurationError: the file is invalid
    """
    if keys() is None:
        LOG.warning(NOT_ENCRYPTED)


def reset() -> None:
    """Read the configuration and the key file again at the next use."""
    global _key_ring  # noqa: PLW0603  one ring of keys per process is the point
    _key_ring = KeyRing()


class KeyRing:
    """The keys of a process, and when it checked the file last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: str | None = None
        self._keys: Keys | None = None
        self._signature: Signature | None = None
        self._next_check = -1.0
        self._complaint = ""  # what was wrong with the file when it was read last

    def current(self, *, at_once: bool = False) -> Keys | None:
        """Return the keys of the file as of now, or of a moment ago.

        :param at_once: check whether the file has changed, even if it was checked recently
        :raises ConfigurationError: the file is invalid and always was
        """
        if at_once or time.monotonic() >= self._next_check:
            with self._lock:
                self._check_file()
                self._next_check = time.monotonic() + CHECK_INTERVAL
        return self._keys

    def _check_file(self) -> None:
        path = CONF.secrets.key_file or None
        if path is None:
            self._path = self._keys = self._signature = None
            return
        if path != self._path:
            self._keys, self._signature, self._path = None, None, path
        try:
            # Before the file is read: a change during the read is noticed by the next check.
            now = key_file.signature(path)
        except OSError:
            now = ()
        if now == self._signature:
            return
        self._keep(path, now)

    def _keep(self, path: str, now: Signature) -> None:
        try:
            self._keys = key_file.read(path)
        except exception.ConfigurationError as error:
            if self._keys is None:
                raise
            self._complain(error)
            if isinstance(error.__cause__, OSError):
                return  # as of too many open files: that may pass and the file stay the same
        else:
            self._complaint = ""
            LOG.debug("Keys were read; %s encrypts", self._keys.first)
        self._signature = now

    def _complain(self, error: exception.ConfigurationError) -> None:
        """Log an error once as long as it is the same."""
        if self._complaint != (text := str(error)):
            self._complaint = text
            LOG.warning("%s The keys that were read before stay in use.", text)


_key_ring = KeyRing()

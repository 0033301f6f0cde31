# SPDX-License-Identifier: Apache-2.0
"""Encryption of secrets before they are stored, and the key ring of a process.

An encrypted value names its format and key: ``encrypted:1:KEY:TOKEN``, a Fernet token. A value
without that prefix was stored by a process without keys, as plain text. Rows are read without
decryption: see :class:`Encrypted`.
"""

from collections.abc import Callable
import dataclasses
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

MARK: Final = "encrypted:1:"
"""No JSON begins like this, and no generated secret."""

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

    def opened(self) -> Any:
        """Return the value; raises SecretUnreadable."""
        return self.read(decrypt(self.text))


def decrypted(value: Any) -> Any:
    """Return the value of a column that may be encrypted.

    :param value: from a row
    :raises SecretUnreadable: its key is missing, or it is damaged
    """
    return value.opened() if isinstance(value, Encrypted) else value


def is_encrypted(text: str) -> bool:
    """Return whether a text is a result of :func:`encrypt`."""
    return text.startswith(MARK)


def prefix(key: str) -> str:
    """Return the prefix of all values that are encrypted by a key.

    :param key: its id
    """
    return f"{MARK}{key}:"


def encrypt(text: str) -> str:
    """Return the encrypted form of a text; without a key file the text itself."""
    keys = _key_ring.current()
    if keys is None:
        return text
    return prefix(keys.first) + keys.by_id[keys.first].encrypt(text.encode()).decode()


def decrypt(text: str) -> str:
    """Return the plain text.

    :raises SecretUnreadable: the key is missing, or the value is damaged
    """
    name, _, token = text.removeprefix(MARK).partition(":")
    keys = _key_ring.current()
    if keys is None or name not in keys.by_id:
        keys = _key_ring.current(at_once=True)
    if keys is None:
        raise _unreadable(name, f"and {OPTION} is not set. Set it to the file with that key")
    if name not in keys.by_id:
        path = CONF.secrets.key_file
        raise _unreadable(name, f"which is not in {path} ({OPTION}). Put it back into that file")
    try:
        return keys.by_id[name].decrypt(token.encode()).decode()
    except (fernet.InvalidToken, ValueError):
        raise exception.SecretUnreadable(
            reason=f"The secrets of this attachment were encrypted with key {name}, and have been "
            "damaged in the database. Delete the attachment, and connect again."
        ) from None


def _unreadable(name: str, why: str) -> exception.SecretUnreadable:
    return exception.SecretUnreadable(
        reason=f"The secrets of this attachment are encrypted with key {name}, {why}; if it is "
        "lost, delete the attachment, and connect again."
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

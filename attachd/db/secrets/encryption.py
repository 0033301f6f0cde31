# SPDX-License-Identifier: Apache-2.0
"""Seals secrets before they are stored, and opens them for who needs them; the keys of a process.

A sealed value says what it is, and by which key: ``sealed:1:KEY:TOKEN``, a Fernet token.  What
does not begin like that was stored by a process without keys, or of a former release, and is what
it says.  Rows are read without opening anything: see :class:`Encrypted`.
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

MARK: Final = "sealed:1:"
"""No JSON begins like this, and no secret that is drawn."""

CHECK_INTERVAL: Final = 2.0
"""Seconds after which a process looks whether its key file has changed."""

NOT_ENCRYPTED: Final = (
    f"{OPTION} is not set: secrets of connections are stored in the database as they are."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Encrypted:
    """A value as a row has it, which nobody has needed yet; stored again, it stays as it is.

    :ivar text: what is stored
    :ivar read: makes the value of what was sealed
    """

    text: str = dataclasses.field(repr=False)
    read: Callable[[str], Any] = dataclasses.field(repr=False, compare=False)

    def opened(self) -> Any:
        """Return the value; raises SecretUnreadable."""
        return self.read(decrypt(self.text))


def decrypted(value: Any) -> Any:
    """Return what a column that may be sealed has.

    :param value: from a row
    :raises SecretUnreadable: it is sealed, and its key is not there, or it is damaged
    """
    return value.opened() if isinstance(value, Encrypted) else value


def is_encrypted(text: str) -> bool:
    """Tell whether this is what :func:`encrypt` returns."""
    return text.startswith(MARK)


def prefix(key: str) -> str:
    """Return what all begins with that is sealed by a key.

    :param key: its id
    """
    return f"{MARK}{key}:"


def encrypt(text: str) -> str:
    """Return what is to be stored instead of a text; without a key file that is the text."""
    keys = _key_ring.current()
    if keys is None:
        return text
    return prefix(keys.first) + keys.by_id[keys.first].encrypt(text.encode()).decode()


def decrypt(text: str) -> str:
    """Return what was sealed.

    :raises SecretUnreadable: its key is not there, or it is damaged
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
            reason=f"The secrets of this attachment were sealed with key {name}, and have been "
            "damaged in the database. Delete the attachment, and connect anew."
        ) from None


def _unreadable(name: str, why: str) -> exception.SecretUnreadable:
    return exception.SecretUnreadable(
        reason=f"The secrets of this attachment are sealed with key {name}, {why}; if it is "
        "lost, delete the attachment, and connect anew."
    )


def keys() -> Keys | None:
    """Return the keys of this process, read anew; None: there is no key file.

    :raises ConfigurationError: the file is not in order
    """
    reset()
    return _key_ring.current()


def start() -> None:
    """Read the key file before a process begins to work, and warn if there is none.

    :raises ConfigurationError: the file is not in order
    """
    if keys() is None:
        LOG.warning(NOT_ENCRYPTED)


def reset() -> None:
    """Read the configuration and the key file again at the next use."""
    global _key_ring  # noqa: PLW0603  one ring of keys per process is the point
    _key_ring = KeyRing()


class KeyRing:
    """The keys of a process, and when it looked for them last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: str | None = None
        self._keys: Keys | None = None
        self._signature: Signature | None = None
        self._next_look = -1.0
        self._complaint = ""  # what was wrong with the file when it was read last

    def current(self, *, at_once: bool = False) -> Keys | None:
        """Return the keys by the file as it is, or was a moment ago.

        :param at_once: look whether it has changed, however lately that was done
        :raises ConfigurationError: it is not in order, and never was
        """
        if at_once or time.monotonic() >= self._next_look:
            with self._lock:
                self._look()
                self._next_look = time.monotonic() + CHECK_INTERVAL
        return self._keys

    def _look(self) -> None:
        path = CONF.secrets.key_file or None
        if path is None:
            self._path = self._keys = self._signature = None
            return
        if path != self._path:
            self._keys, self._signature, self._path = None, None, path
        try:
            # Before the file is read: what is changed meanwhile is read again.
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
            LOG.debug("Keys were read; %s seals", self._keys.first)
        self._signature = now

    def _complain(self, error: exception.ConfigurationError) -> None:
        """Log what is wrong, once as long as it is the same."""
        if self._complaint != (text := str(error)):
            self._complaint = text
            LOG.warning("%s The keys that were read before stay in use.", text)


_key_ring = KeyRing()

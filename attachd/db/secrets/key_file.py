# SPDX-License-Identifier: Apache-2.0
"""The file with the keys that encrypt secrets; read by encryption.py, changed by operators.

A line is a Fernet key: 32 bytes in URL-safe base64. The first key encrypts, all keys decrypt.
Empty lines and lines that begin with ``#`` are comments, except :data:`ENCRYPTED_ONLY`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
import re
import secrets
import stat
from typing import Final, NamedTuple

from cryptography import fernet

from attachd import exception

OPTION: Final = "[secrets] key_file"
ID_LENGTH: Final = 8
ENCRYPTED_ONLY: Final = "# encrypted-only"
"""The line that says that the database has no plain text."""

_KEY_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]=")
_MAX_SIZE: Final = 64 * 1024
_OTHERS_ACCESS: Final = stat.S_IRWXO
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Non-blocking, because a pipe would block until a process writes to it."""
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Keys(NamedTuple):
    """The keys of a file.

    :ivar first: the id of the key that encrypts
    :ivar by_id: all keys that decrypt, in the order of the file
    :ivar encrypted_only: whether values that are not encrypted are refused
    """

    first: str
    by_id: Mapping[str, fernet.Fernet]
    encrypted_only: bool = False


Signature = tuple[int, ...]
"""Differs when a file may have changed."""


def generate() -> str:
    """Generate a key."""
    return fernet.Fernet.generate_key().decode()


def key_id(key: str) -> str:
    """Return the id of a key, which does not reveal it: the beginning of its SHA-256 digest."""
    return hashlib.sha256(key.encode()).hexdigest()[:ID_LENGTH]


def signature(path: str) -> Signature:
    """Return a value that differs when the file has changed; raises OSError."""
    status = Path(path).stat()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read(path: str) -> Keys:
    """Read the keys of a file.

    :raises ConfigurationError: it cannot be read, is accessible to others, or has no keys, or
        other content
    """
    return _parse(path, _read_lines(path))


def _read_lines(path: str) -> list[str]:
    if not Path(path).is_absolute():
        raise _error(path, "is not an absolute path")
    try:
        descriptor = os.open(path, _READ_FLAGS)
        try:
            _check_private(path, os.fstat(descriptor).st_mode)
            content = os.read(descriptor, _MAX_SIZE + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}") from error
    if len(content) > _MAX_SIZE:
        raise _error(path, f"is longer than {_MAX_SIZE} bytes")
    # Comments are written back unchanged; only a newline ends a line.
    return content.decode(errors="surrogateescape").removesuffix("\n").split("\n")


def _check_private(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _error(path, "is not a regular file")
    if mode & _OTHERS_ACCESS:
        raise _error(
            path,
            f"has mode {stat.S_IMODE(mode):04o}: others than its owner and group must have no "
            "access (chmod o= FILE)",
        )


def _parse(path: str, lines: Sequence[str]) -> Keys:
    keys = _parse_keys(path, lines)
    if not keys:
        raise _error(path, "has no key: attachd-manage key create generates one")
    encrypted_only = any(line.strip() == ENCRYPTED_ONLY for line in lines)
    return Keys(next(iter(keys)), keys, encrypted_only)


def _parse_keys(path: str, lines: Sequence[str]) -> dict[str, fernet.Fernet]:
    keys: dict[str, fernet.Fernet] = {}
    for number, line in enumerate(lines, 1):
        if not _is_key_line(line):
            continue
        key = line.strip()
        if not _KEY_PATTERN.fullmatch(key):  # Fernet would accept characters after it.
            reason = f"line {number} is no key: 32 bytes in URL-safe base64 are needed"
            raise _error(path, reason)
        name = key_id(key)
        if name in keys:
            raise _error(path, f"has key {name} twice, in line {number} again")
        keys[name] = fernet.Fernet(key)
    return keys


def _is_key_line(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _error(path: str, reason: str) -> exception.ConfigurationError:
    return exception.ConfigurationError(reason=f"{OPTION}: {path} {reason}.")


def create(path: str) -> str:
    """Create a file with one new key, for its owner only, and return the key's id.

    :raises Conflict: the file exists
    :raises ConfigurationError: it cannot be created
    """
    if not Path(path).is_absolute():
        raise _error(path, "is not an absolute path")
    key = generate()
    real = Path(path)
    try:
        with _temporary_file(real, [key]) as draft:
            real.hardlink_to(draft)
            _sync_directory(real.parent)
    except FileExistsError as error:
        raise exception.Conflict(reason=f"{path} exists already.") from error
    except OSError as error:
        raise _error(path, f"cannot be created: {error.strerror}") from error
    return key_id(key)


def add(path: str) -> str:
    """Append a new key to a file, where it only decrypts, and return the key's id.

    It encrypts where it is the only key.

    :raises ConfigurationError: the file is invalid, or cannot be written
    """
    key = generate()
    _change(path, lambda lines: [*lines, key])
    return key_id(key)


def promote(path: str, name: str) -> None:
    """Make one of the keys the first of its file, which encrypts.

    :raises NotFound: the file has no such key
    :raises ConfigurationError: as :func:`add`
    """

    def changed(lines: Sequence[str]) -> list[str]:
        current = _find_line(path, lines, name)
        first = next(number for number, line in enumerate(lines) if _is_key_line(line))
        others = [line for line in lines if line is not current]
        return [*others[:first], current, *others[first:]]

    _change(path, changed)


def refuse_plain_text(path: str) -> bool:
    """Add the line ENCRYPTED_ONLY to a file; return whether it lacked it.

    :raises ConfigurationError: as :func:`add`
    """
    if read(path).encrypted_only:
        return False
    _change(path, lambda lines: [ENCRYPTED_ONLY, *lines])
    return True


def remove(path: str, name: str) -> None:
    """Remove a key from its file.

    :raises NotFound: the file has no such key
    :raises Conflict: it is the first one
    :raises ConfigurationError: as :func:`add`
    """

    def changed(lines: Sequence[str]) -> list[str]:
        current = _find_line(path, lines, name)
        if _parse(path, lines).first == name:
            raise exception.Conflict(
                reason=f"Key {name} is the first of {path}, which encrypts. Make another key "
                "the first one before: attachd-manage key promote."
            )
        return [line for line in lines if line is not current]

    _change(path, changed)


def _find_line(path: str, lines: Sequence[str], name: str) -> str:
    for line in lines:
        if _is_key_line(line) and key_id(line.strip()) == name:
            return line
    raise exception.NotFound(f"{path} has no key {name}.")


def _change(path: str, change: Callable[[Sequence[str]], list[str]]) -> None:
    """Replace a file by a changed one with the same owner, group and mode."""
    with _locked(path):
        lines = _read_lines(path)
        _parse_keys(path, lines)
        real = Path(path).resolve()
        try:
            with _temporary_file(real, change(lines), real.stat()) as draft:
                draft.replace(real)
                _sync_directory(real.parent)
        except OSError as error:
            raise _error(path, f"cannot be changed: {error.strerror}") from error


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Keep other processes on this host from changing a file; readers do not wait."""
    try:
        held = _lock(path)
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(held)


def _lock(path: str) -> int:
    """Return an open file with the lock, which ends when it is closed."""
    while True:
        held = os.open(path, _READ_FLAGS)
        try:
            with contextlib.suppress(OSError):  # where files cannot be locked, there is no lock
                fcntl.flock(held, fcntl.LOCK_EX)
            # The last holder of the lock has replaced this file by another one.
            if os.path.samestat(os.fstat(held), Path(path).stat()):
                return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)


@contextlib.contextmanager
def _temporary_file(
    path: Path, lines: Sequence[str], like: os.stat_result | None = None
) -> Iterator[Path]:
    """Write a file beside another one, which it can replace atomically; raises OSError."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, _CREATE_FLAGS, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            if like is not None:
                os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(descriptor)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _sync_directory(folder: Path) -> None:
    """Make a directory's entries durable; by then secrets may be encrypted with the key."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

# SPDX-License-Identifier: Apache-2.0
"""Who has an account, from two files that are read again when they change; used by http_basic.

One has names and bcrypt hashes, as ``htpasswd -B`` writes them, the other says in YAML which
project and roles they have.
"""

from collections.abc import Mapping
import hashlib
import hmac
import os
from pathlib import Path
import re
import secrets
import stat
import threading
from typing import Any, Final, NamedTuple

import bcrypt
import jsonschema
from oslo_log import log
import yaml

from attachd import exception
from attachd.conf import CONF

LOG = log.getLogger(__name__)

_ENTRY: Final = re.compile(r"([^\s:]{1,64}):(\$2[aby]\$([0-3][0-9])\$[./A-Za-z0-9]{53})")
_MAX_PASSWORD: Final = 72
"""Bytes; bcrypt does not look further."""
_IMPLIED: Final[Mapping[str, tuple[str, ...]]] = {
    "admin": ("manager", "member", "reader"),
    "manager": ("member", "reader"),
    "member": ("reader",),
}
"""The roles that come with others, as Keystone has it."""
_MAX_VERIFIED: Final = 1000
_ROLES: Final = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {
            "project": {"type": "string", "maxLength": 64},
            "roles": {"type": "array", "items": {"type": "string", "minLength": 1}},
        },
        "required": ["project", "roles"],
        "additionalProperties": False,
    },
}


class User(NamedTuple):
    """Somebody who may come in."""

    name: str
    project_id: str
    roles: tuple[str, ...]


class _Loaded(NamedTuple):
    """What was read: accounts and hashes by name, and a hash that fits no password."""

    users: Mapping[str, User]
    hashes: Mapping[str, bytes]
    dummy_hash: bytes


class UserStore:
    """The accounts of two files, and what they were when the files were last good."""

    def __init__(self, user_file: Path, roles_file: Path) -> None:
        """Read the files.

        :raises ConfigurationError: they cannot be used
        """
        self._files = (user_file, roles_file)
        self._reading = threading.Lock()
        self._key = secrets.token_bytes(32)
        self._verified_cache: dict[bytes, None] = {}
        self._file_state = self._stat_files()
        self._loaded = self._read()

    def find(self, name: str, password: bytes) -> User | None:
        """Return the account that a name and its password belong to.

        How long it takes does not tell whether there is such a name.
        """
        self._refresh()
        known = self._loaded
        hashed = known.hashes.get(name)
        if hashed is None:
            _password_matches(password, known.dummy_hash)
            return None
        proof = hmac.digest(self._key, hashed + password, hashlib.sha256)
        if proof not in self._verified_cache:
            if not _password_matches(password, hashed):
                return None
            # bcrypt is slow for whoever guesses, not for whoever is known.
            if len(self._verified_cache) >= _MAX_VERIFIED:
                self._verified_cache.clear()
            self._verified_cache[proof] = None
        return known.users.get(name)

    def _stat_files(self) -> list[tuple[int, ...] | None]:
        return [_stat(each) for each in self._files]

    def _refresh(self) -> None:
        """Read files that have changed; as long as they are wrong, all stays as it was."""
        seen = self._stat_files()
        if seen == self._file_state or not self._reading.acquire(blocking=False):
            return
        try:
            self._file_state = seen
            self._loaded = self._read()
            LOG.info("%s and %s were read again", *self._files)
        except exception.ConfigurationError as error:
            LOG.error("All accounts stay as they were before: %s", error)  # noqa: TRY400
        finally:
            self._reading.release()

    def _read(self) -> _Loaded:
        user_file, roles_file = self._files
        hashes, cost = _read_hashes(user_file)
        users = _read_accounts(roles_file)
        for name in hashes.keys() - users.keys():
            LOG.warning(
                "%s has %r, who is not in %s and cannot come in", user_file, name, roles_file
            )
        for name in users.keys() - hashes.keys():
            LOG.warning(
                "%s has %r, who is not in %s and cannot come in", roles_file, name, user_file
            )
        return _Loaded(users, hashes, bcrypt.gensalt(cost) + b"." * 31)


def _stat(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _password_matches(password: bytes, hashed: bytes) -> bool:
    short = password[:_MAX_PASSWORD]
    return bool(bcrypt.checkpw(short, hashed)) and short == password


def _read_hashes(path: Path) -> tuple[dict[str, bytes], int]:
    """Return hashes by name, and the highest of their costs."""
    hashes: dict[str, bytes] = {}
    cost = 4
    text = _read_private(path, stat.S_IRWXO, "hold it back from others: chmod o= ")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _ENTRY.fullmatch(line.strip())
        if found is None:
            raise _error(path, f"line {number} is no NAME:HASH as htpasswd -B makes them")
        if found[1] in hashes:
            raise _error(path, f"line {number} has {found[1]!r} again")
        hashes[found[1]] = found[2].encode()
        cost = max(cost, int(found[3]))
    return hashes, cost


def _read_accounts(path: Path) -> dict[str, User]:
    text = _read_private(path, stat.S_IWOTH, "let no others write to it: chmod o-w ")
    try:
        said: Any = yaml.safe_load(text) or {}
        jsonschema.validate(said, _ROLES)
    except yaml.YAMLError as error:
        raise _error(path, f"is no YAML: {error}") from error
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path))
        raise _error(
            path, f"{where}: {error.message}; quote what only looks like a number"
        ) from error
    return {name: _user(path, name, **values) for name, values in said.items()}


def _user(path: Path, name: str, project: str, roles: list[str]) -> User:
    if not re.fullmatch(CONF.api.project_id_regex, project):
        raise _error(
            path,
            f"{name}.project: {project!r} cannot be in a URL, see [api]project_id_regex",
        )
    implied = [more for role in roles for more in _IMPLIED.get(role, ())]
    return User(name, project, tuple(dict.fromkeys([*roles, *implied])))


def _read_private(path: Path, forbidden: int, advice: str) -> str:
    """Read a file which is not for everybody."""
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & forbidden:
                raise _error(path, f"{advice}{path}")
            return file.read()
    except OSError as error:
        raise _error(path, f"{error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _error(path, f"is not UTF-8: {error.reason}") from error


def _error(path: Path, reason: str) -> exception.ConfigurationError:
    return exception.ConfigurationError(reason=f"{path}: {reason}")

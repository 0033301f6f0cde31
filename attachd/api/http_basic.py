# SPDX-License-Identifier: Apache-2.0
"""HTTP basic authentication: [api]auth_strategy = http_basic; loaded by app.

The users are in two files that are reloaded when they change.  One has names and bcrypt hashes, as
``htpasswd -B`` writes them; the other is YAML and has the project and the roles of each user.

The middleware of oslo.middleware computes a bcrypt hash for each request, reads the file for each
request, answers at once for an unknown name, knows neither projects nor roles, and answers errors
of the application with a 401: of that library only the parsing of the header is used.

Source: RFC 7617.
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
from oslo_middleware import basic_auth
import webob
from webob import exc
import yaml

from attachd import exception
from attachd.api import errors, identity
from attachd.api.identity import Application, Environ
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

_USER_KEY: Final = "attachd.account"
_CHALLENGE: Final = 'Basic realm="attachd", charset="UTF-8"'
_SHOWN: Final = 64

_ENTRY: Final = re.compile(r"([^\s:]{1,64}):(\$2[aby]\$([0-3][0-9])\$[./A-Za-z0-9]{53})")
_MAX_PASSWORD: Final = 72
"""Bytes; bcrypt ignores the rest of a longer password."""
_IMPLIED: Final[Mapping[str, tuple[str, ...]]] = {
    "admin": ("manager", "member", "reader"),
    "manager": ("member", "reader"),
    "member": ("reader",),
}
"""The roles that a role implies, as in Keystone."""
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
    """A user and what it may do."""

    name: str
    project_id: str
    roles: tuple[str, ...]


class _Loaded(NamedTuple):
    """The content of both files: users and hashes by name, and a hash that matches no password."""

    users: Mapping[str, User]
    hashes: Mapping[str, bytes]
    dummy_hash: bytes


class UserStore:
    """The users of two files, as of the last time that both files were valid."""

    def __init__(self, user_file: Path, roles_file: Path) -> None:
        """Load the files.

        :raises ConfigurationError: a file is missing or invalid
        """
        self._files = (user_file, roles_file)
        self._reading = threading.Lock()
        self._key = secrets.token_bytes(32)
        self._verified_cache: dict[bytes, None] = {}
        self._file_state = self._stat_files()
        self._loaded = self._read()

    def find(self, name: str, password: bytes) -> User | None:
        """Return the user with this name and password, or None.

        An unknown name takes as long as a wrong password, so that names cannot be probed.
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
            # bcrypt is slow on purpose: it runs once for each correct password, then the cache.
            if len(self._verified_cache) >= _MAX_VERIFIED:
                self._verified_cache.clear()
            self._verified_cache[proof] = None
        return known.users.get(name)

    def _stat_files(self) -> list[tuple[int, ...] | None]:
        return [_stat(path) for path in self._files]

    def _refresh(self) -> None:
        """Reload changed files; invalid ones leave the users unchanged."""
        seen = self._stat_files()
        if seen == self._file_state or not self._reading.acquire(blocking=False):
            return
        try:
            self._file_state = seen
            self._loaded = self._read()
            LOG.info("Users reloaded from %s and %s", *self._files)
        except exception.ConfigurationError as error:
            LOG.error("Users not reloaded, the previous ones stay: %s", error)  # noqa: TRY400
        finally:
            self._reading.release()

    def _read(self) -> _Loaded:
        user_file, roles_file = self._files
        hashes, cost = _read_hashes(user_file)
        users = _read_users(roles_file)
        for name in sorted(hashes.keys() ^ users.keys()):
            known, lacking = self._files if name in hashes else reversed(self._files)
            LOG.warning(
                "%s has user %r, but %s does not: this user cannot log in", known, name, lacking
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
    """Return hashes by name, and the highest bcrypt cost among them."""
    hashes: dict[str, bytes] = {}
    cost = 4
    text = _read_private(path, stat.S_IRWXO, "others must have no access: chmod o= ")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _ENTRY.fullmatch(line.strip())
        if found is None:
            raise _error(path, f"line {number} is not NAME:HASH as htpasswd -B writes it")
        if found[1] in hashes:
            raise _error(path, f"line {number} repeats the name {found[1]!r}")
        hashes[found[1]] = found[2].encode()
        cost = max(cost, int(found[3]))
    return hashes, cost


def _read_users(path: Path) -> dict[str, User]:
    text = _read_private(path, stat.S_IWOTH, "others must not write to it: chmod o-w ")
    try:
        said: Any = yaml.safe_load(text) or {}
        jsonschema.validate(said, _ROLES)
    except yaml.YAMLError as error:
        raise _error(path, f"is not YAML: {error}") from error
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path))
        raise _error(
            path, f"{where}: {error.message}; quote values that look like numbers"
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
    """Read a file with restricted permissions."""
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


class BasicAuthMiddleware:
    """Middleware that checks name and password."""

    def __init__(self, application: Application, users: UserStore) -> None:
        self._inner = application
        self._users = users

    def __call__(self, environ: Environ, start_response: identity.StartResponse) -> Any:
        """Handle one request."""
        if identity.needs_auth(environ):
            user = self._authenticate(environ)
            if user is None:
                return _refuse(environ, start_response)
            environ[_USER_KEY] = user
        return self._inner(environ, start_response)

    def _authenticate(self, environ: Environ) -> User | None:
        try:
            # parse_header() also removes the password from what the application sees.
            name, password = basic_auth.parse_token(basic_auth.parse_header(environ))
        except exc.HTTPClientError:
            return None
        user = self._users.find(name, password)
        if user is None:
            LOG.warning(
                "Login failed: name %r from %s",
                name[:_SHOWN],
                environ.get("REMOTE_ADDR"),
            )
        return user


def _refuse(environ: Environ, start_response: identity.StartResponse) -> Any:
    fault = errors.fault(exception.Unauthorized(reason=identity.UNAUTHENTICATED), "")
    response = webob.Response(fault.body, fault.status, content_type="application/json")
    response.headers["WWW-Authenticate"] = _CHALLENGE
    return response(environ, start_response)


def wrap(application: Application) -> Application:
    """Put the check of name and password in front of an application.

    :raises ConfigurationError: the files with users are invalid
    """
    users = UserStore(Path(CONF.api.http_basic_user_file), Path(CONF.api.http_basic_roles_file))
    return BasicAuthMiddleware(application, users)


def identify(environ: Environ, url_project: str | None) -> RequestContext:
    """Return the context of the user that the middleware has authenticated.

    :raises Unauthorized: the middleware has not seen this request
    :raises BadRequest: the URL is of another project than the user
    """
    user = environ.get(_USER_KEY)
    if user is None:
        raise exception.Unauthorized(reason=identity.UNAUTHENTICATED)
    return identity.context(
        environ,
        url_project,
        user_id=user.name,
        user_name=user.name,
        project_id=user.project_id,
        roles=list(user.roles),
    )

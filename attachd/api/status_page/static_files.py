# SPDX-License-Identifier: Apache-2.0
"""Middleware that serves the files of the status page, to all callers.

The files are read once, when the API starts, so that a request never reads a path that a caller
has chosen.  The page has no cookies and the server keeps nothing of a browser: each request of the
page for data is one of the API, with the token or the password that the user has typed.
"""

from collections.abc import Iterable, Iterator, Mapping
import gzip
import hashlib
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
import json
from types import MappingProxyType
from typing import Final, NamedTuple
import urllib.parse

from attachd.api import telemetry_middleware
from attachd.api.identity import Application, Environ, StartResponse
from attachd.conf import CONF

PATH: Final = "/ui"
SETTINGS: Final = "settings.json"
"""The file that says how users of this API sign in."""

_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "html": "text/html; charset=utf-8",
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "json": "application/json",
        "svg": "image/svg+xml",
    }
)
"""The content types by the ends of names; other files are not served."""
_INDEX: Final = "index.html"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'{origins}; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types lit-html"
)


class _File(NamedTuple):
    """A file of the page.

    :ivar compressed: the content, by gzip
    """

    content: bytes
    compressed: bytes
    content_type: str
    tag: str

    @classmethod
    def create(cls, name: str, content: bytes) -> "_File":
        """Prepare a file with this content."""
        digest = hashlib.sha256(content).hexdigest()[:32]
        content_type = _TYPES[name.rpartition(".")[2]]
        return cls(content, gzip.compress(content, mtime=0), content_type, digest)


class StatusPage:
    """Middleware that answers /ui and what is below, without version and authentication."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner
        folder = resources.files(__package__) / "files"
        self._files = {name: _File.create(name, content) for name, content in _read(folder)}
        self._files[""] = self._files[_INDEX]
        self._files[SETTINGS] = _File.create(SETTINGS, _settings())
        self._headers = [
            ("Content-Security-Policy", _POLICY.format(origins=_keystone_origin())),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-cache"),
            ("Vary", "Accept-Encoding"),
        ]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        path = str(environ.get("PATH_INFO", ""))
        if path != PATH and not path.startswith(f"{PATH}/"):
            return self._inner(environ, start_response)
        environ[telemetry_middleware.ENVIRON_KEY] = PATH
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return self._answer(
                environ, start_response, HTTPStatus.METHOD_NOT_ALLOWED, [("Allow", "GET, HEAD")]
            )
        if path == PATH:
            # Relative, because a proxy may have shortened the path; the page's links are as well.
            return self._answer(
                environ, start_response, HTTPStatus.PERMANENT_REDIRECT, [("Location", "ui/")]
            )
        found = self._files.get(path.removeprefix(f"{PATH}/"))
        if found is None:
            return self._answer(environ, start_response, HTTPStatus.NOT_FOUND)
        return self._send(environ, start_response, found)

    def _send(
        self, environ: Environ, start_response: StartResponse, file: _File
    ) -> Iterable[bytes]:
        is_compressed = "gzip" in str(environ.get("HTTP_ACCEPT_ENCODING", ""))
        tag = f'"{file.tag}-gzip"' if is_compressed else f'"{file.tag}"'
        headers = [("ETag", tag)]
        if tag in str(environ.get("HTTP_IF_NONE_MATCH", "")):
            return self._answer(environ, start_response, HTTPStatus.NOT_MODIFIED, headers)
        headers.append(("Content-Type", file.content_type))
        if is_compressed:
            headers.append(("Content-Encoding", "gzip"))
        content = file.compressed if is_compressed else file.content
        return self._answer(environ, start_response, HTTPStatus.OK, headers, content)

    def _answer(
        self,
        environ: Environ,
        start_response: StartResponse,
        status: HTTPStatus,
        headers: Iterable[tuple[str, str]] = (),
        content: bytes | None = None,
    ) -> Iterable[bytes]:
        more = list(headers)
        if content is None and status is not HTTPStatus.NOT_MODIFIED:
            content = f"{status.value} {status.phrase}\n".encode()
            more.append(("Content-Type", "text/plain; charset=utf-8"))
        if content is not None:
            more.append(("Content-Length", str(len(content))))
        start_response(f"{status.value} {status.phrase}", [*self._headers, *more])
        return [content] if content and environ["REQUEST_METHOD"] != "HEAD" else []


def _read(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Read the files that are served, with their paths below the folder."""
    for item in folder.iterdir():
        if item.is_dir():
            yield from _read(item, f"{prefix}{item.name}/")
        elif item.name.rpartition(".")[2] in _TYPES:
            yield f"{prefix}{item.name}", item.read_bytes()


def _settings() -> bytes:
    settings = {"auth_strategy": CONF.api.auth_strategy, "keystone_url": CONF.ui.keystone_url}
    return json.dumps(settings).encode()


def _keystone_origin() -> str:
    """Return the origin of Keystone as a part of the policy; "" if the page does not need it."""
    if CONF.api.auth_strategy != "keystone" or not CONF.ui.keystone_url:
        return ""
    parts = urllib.parse.urlsplit(CONF.ui.keystone_url)
    return f" {parts.scheme}://{parts.netloc}"

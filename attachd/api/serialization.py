# SPDX-License-Identifier: Apache-2.0
"""Reads bodies and query strings sent by anybody, and writes answers; used by root.

Whatever is wrong with them is the sender's mistake and is told so; what is returned can be
stored, sent by RPC and shown without any further care: text is UTF-8 without NUL, numbers are
finite, nesting is shallow.
"""

import abc
from collections.abc import Iterator
import json
import re
from typing import Any
import urllib.parse

from oslo_log import log
import webob

from attachd import exception
from attachd.api import validation
from attachd.conf import CONF

LOG = log.getLogger(__name__)

MEDIA_TYPES = frozenset({"application/json", "application/vnd.openstack.volume+json"})
MAX_DEPTH = 32
"""How deep objects and arrays of a body may be nested."""
MAX_PARAMETERS = 100
_CHUNK = 64 * 1024
_MAX_DRAIN = 32 * 1024 * 1024
"""Bytes of a refused body that are read, so that the sender gets to see the refusal."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SUSPICIOUS = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def read_json(request: webob.Request) -> Any:
    """Return what the body says in JSON.

    :raises BadRequest: it is empty or broken
    :raises UnsupportedMediaType: it is something else
    :raises TooLarge: it exceeds [api]max_request_body_size
    """
    raw = _read(request)
    if not raw:
        raise exception.BadRequest(reason="The request has no body, but needs one.")
    media_type = request.content_type
    if not media_type:
        raise exception.BadRequest(
            reason="The request has a body, but no Content-Type: send application/json."
        )
    if media_type not in MEDIA_TYPES:
        raise exception.UnsupportedMediaType
    return parse(raw)


def parse(raw: bytes) -> Any:
    """Return what a body says in JSON; raises BadRequest."""
    try:
        text = raw.decode()
        _check_depth(text)
        value = json.loads(text, parse_constant=_reject_constant, parse_float=_parse_float)
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, json.JSONDecodeError) else _explain(error)
        raise exception.BadRequest(reason=f"Malformed request body: {reason}") from None
    if _SUSPICIOUS.search(text):
        _check_storable(value)
    return value


class StreamingBody(abc.ABC):
    """An answer that is sent piece by piece; who sends it closes it, whatever happens."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """Yield what is sent next."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give back what it uses."""


def encode(result: Any) -> bytes:
    """Return an answer in JSON, with times as the Block Storage API writes them."""
    return _to_json(result).encode()


def _format_time(value: Any) -> str:
    """Write a time: 2026-01-31T12:00:00.000000."""
    text: str = value.isoformat(timespec="microseconds")
    return text


_to_json = json.JSONEncoder(default=_format_time).encode


def _read(request: webob.Request) -> bytes:
    limit = CONF.api.max_request_body_size
    length = request.content_length
    if length is not None and length <= limit:
        return _read_exactly(request.environ["wsgi.input"], length)
    if not request.is_body_readable:
        if "HTTP_TRANSFER_ENCODING" in request.environ:  # where the server does not decode it
            raise exception.BadRequest(reason="The body is chunked: send a Content-Length.")
        return b""
    source = request.body_file
    raw: bytes = b"" if length else source.read(limit + 1)
    if length or len(raw) > limit:
        _drain(source, _MAX_DRAIN if length is None else min(length, _MAX_DRAIN))
        raise exception.TooLarge(what="The request body", limit=limit)
    return raw


def _read_exactly(source: Any, length: int) -> bytes:
    """Read a body to its end, where webob would make copies of it for others to read again."""
    pieces: list[bytes] = []
    while length > 0:
        try:
            piece = source.read(length)
        except OSError as error:  # what a server raises when its client hangs up
            LOG.debug("A body could not be read: %s", error)
            piece = b""
        if not piece:
            raise exception.BadRequest(reason="The request ended before its body did.")
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _drain(source: Any, amount: int) -> None:
    while amount > 0:
        chunk = source.read(min(_CHUNK, amount))
        if not chunk:
            return
        amount -= len(chunk)


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for mark in re.finditer(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', text, re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark[0], 0)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _parse_float(literal: str) -> float:
    value = float(literal)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(f"the number {literal[: validation.MAX_SHOWN]} is too large")
    return value


def _explain(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error)
    if text.startswith("Exceeds the limit"):  # Python's own words are about Python
        return "a number has too many digits"
    return text[: 2 * validation.MAX_SHOWN]


def _check_storable(value: Any) -> None:
    """Walk through a value whose text holds a NUL or half a surrogate pair, perhaps."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, dict):
            waiting += ((path, key) for key in item)
            waiting += ((f"{path}.{key}" if path else key, item[key]) for key in item)
        elif isinstance(item, list):
            waiting += ((f"{path}.{i}", each) for i, each in enumerate(item))
        elif isinstance(item, str) and _UNSTORABLE.search(item):
            raise exception.InvalidInput(
                field=ascii(path or "body")[1:-1],
                value=validation.abbreviate(item),
                reason="It holds a NUL character or half a surrogate pair.",
            )


def read_query(text: str) -> dict[str, str]:
    """Return the parameters of a query string; of several with one name the last one.

    :raises BadRequest: it is not UTF-8, or holds control characters
    """
    if not text:
        return {}
    try:
        pairs = urllib.parse.parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except UnicodeDecodeError:
        raise exception.BadRequest(reason="The query string is not UTF-8.") from None
    except ValueError:
        raise exception.BadRequest(
            reason=f"The query string has more than {MAX_PARAMETERS} parameters."
        ) from None
    for name, value in pairs:
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise exception.InvalidInput(
                field=ascii(name[: validation.MAX_SHOWN])[1:-1],
                value=validation.abbreviate(value),
                reason="It holds control characters.",
            )
    return dict(pairs)


def check_segments(values: tuple[str, ...]) -> None:
    """Let the variable parts of a URL pass; nothing has a name that cannot be read.

    :raises NotFound: one is too long, or holds control characters
    """
    for value in values:
        if len(value) > 255 or _CONTROL.search(value):  # noqa: PLR2004  the longest column
            raise exception.NotFound

# SPDX-License-Identifier: Apache-2.0
"""Parsing of bodies and query strings from untrusted clients, and encoding of responses.

Mistakes are answered as the client's.  Parsed values can be stored, sent by RPC and shown without
further checks: text is UTF-8 without NUL, numbers are finite, nesting is shallow.
"""

import abc
from collections.abc import Iterator
import json
import re
from typing import Any
import urllib.parse

from oslo_log import log
import webob

from attachd import exception, objects
from attachd.api import validation
from attachd.conf import CONF

LOG = log.getLogger(__name__)

MEDIA_TYPES = frozenset({"application/json", "application/vnd.openstack.volume+json"})
MAX_DEPTH = 32
"""Maximum nesting of objects and arrays in a body."""
_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
MAX_PARAMETERS = 100
MAX_VALUE = 1024
"""Maximum length of the value of a query parameter, in characters: more than a column holds."""
_DICTIONARIES = frozenset({"metadata", "glance_metadata", "extra_specs"})
"""Query parameters whose values are longer; validation.parse_pairs() limits them."""
_CHUNK = 64 * 1024
_MAX_DRAIN = 32 * 1024 * 1024
"""Bytes of a rejected body that are read, so that the client can read the response."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SUSPICIOUS = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_RESERVED = re.compile(rf"{re.escape(objects.RESERVED_PREFIX)}|\\u00[2-7]")
"""A key of a serialized object, or an escaped ASCII character, which may be a part of one."""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def read_json(request: webob.Request) -> Any:
    """Parse the JSON body of a request.

    :raises BadRequest: it is empty or malformed
    :raises UnsupportedMediaType: it is not declared as JSON
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
    """Parse a JSON body; raises BadRequest."""
    try:
        text = raw.decode()
        value = json.loads(text, parse_constant=_reject_constant, parse_float=_parse_float)
        _check_depth(text, value)
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, json.JSONDecodeError) else _explain(error)
        raise exception.BadRequest(reason=f"Malformed request body: {reason}") from None
    if _SUSPICIOUS.search(text):
        _check_storable(value)
    if _RESERVED.search(text):
        _check_keys(value)
    return value


class StreamingBody(abc.ABC):
    """A response body that is sent in chunks; the web server closes it in any case."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """Yield the chunks."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the resources of the body."""


def encode(result: Any) -> bytes:
    """Encode a response as JSON, with times in the format of the Block Storage API."""
    return _to_json(result).encode()


def _format_time(value: Any) -> str:
    """Format a time: 2026-01-31T12:00:00.000000."""
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
    """Read a body to its end; webob would copy it, so that it can be read again."""
    pieces: list[bytes] = []
    while length > 0:
        try:
            piece = source.read(length)
        except OSError as error:  # raised by a web server when its client disconnects
            LOG.debug("Reading a body failed: %s", error)
            piece = b""
        if not piece:
            raise exception.BadRequest(reason="The request ended before its body did.")
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _drain(source: Any, amount: int) -> None:
    while amount > 0:
        try:
            chunk = source.read(min(_CHUNK, amount))
        except OSError as error:  # raised by webob and web servers when the client disconnects
            LOG.debug("Reading a body failed: %s", error)
            return
        if not chunk:
            return
        amount -= len(chunk)


def _check_depth(text: str, value: Any) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level = [value] if isinstance(value, list | dict) else []
    for _depth in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, list | dict)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


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
        return _TOO_DEEP
    text = str(error)
    if text.startswith("Exceeds the limit"):  # Python's message names a Python function
        return "a number has too many digits"
    return text[: 2 * validation.MAX_SHOWN]


def _check_storable(value: Any) -> None:
    """Check that no string in a value has a NUL or half a surrogate pair."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, dict):
            waiting += ((path, key) for key in item)
            waiting += ((f"{path}.{key}" if path else key, item[key]) for key in item)
        elif isinstance(item, list):
            waiting += ((f"{path}.{i}", child) for i, child in enumerate(item))
        elif isinstance(item, str) and _UNSTORABLE.search(item):
            raise exception.InvalidInput(
                field=ascii(path or "body")[1:-1],
                value=validation.abbreviate(item),
                reason="It holds a NUL character or half a surrogate pair.",
            )


def _check_keys(value: Any) -> None:
    """Check that no object in a value could be taken for a serialized object of RPC."""
    if (path := objects.find_reserved_key(value)) is not None:
        shown = [part[: validation.MAX_SHOWN] for part in path]
        raise exception.InvalidInput(
            field=ascii(".".join(shown))[1:-1],
            value=validation.abbreviate(path[-1]),
            reason=f"Keys must not begin with '{objects.RESERVED_PREFIX}'.",
        )


def read_query(text: str) -> dict[str, str]:
    """Parse a query string; the last of several parameters of one name counts.

    :raises BadRequest: it is not UTF-8, has control characters, or a value is too long
    """
    if not text:
        return {}
    try:
        pairs = urllib.parse.parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        problem = f"has more than {MAX_PARAMETERS} parameters" if is_text else "is not UTF-8"
        raise exception.BadRequest(reason=f"The query string {problem}.") from None
    for name, value in pairs:
        reason = ""
        if _CONTROL.search(name) or _CONTROL.search(value):
            reason = "It holds control characters."
        elif len(value) > MAX_VALUE and name not in _DICTIONARIES:
            reason = f"It is longer than {MAX_VALUE} characters."
        if reason:
            field = ascii(name[: validation.MAX_SHOWN])[1:-1]
            shown = validation.abbreviate(value)
            raise exception.InvalidInput(field=field, value=shown, reason=reason)
    return dict(pairs)


def check_segments(values: tuple[str, ...]) -> None:
    """Check the variable parts of a URL.

    :raises NotFound: one is too long, or has control characters, as no resource does
    """
    for value in values:
        if len(value) > 255 or _CONTROL.search(value):  # noqa: PLR2004  the longest column
            raise exception.NotFound

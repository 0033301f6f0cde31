# SPDX-License-Identifier: Apache-2.0
"""Normalize answers of different servers: remove ids, times and sentences; for the player.

What is compared is the status, the headers that clients read, and the body.  The sentences of
errors are each server's own; their key, code and place are not.
"""

from collections.abc import Mapping
import dataclasses
import json
import re
from typing import Any

from attachd.tests.contract.answers.scenarios import Request

VERSION = "openstack-api-version"
IDS = ("x-openstack-request-id", "x-compute-request-id")
HEADERS = (VERSION, "vary", "content-type", *IDS, "location", "retry-after", "www-authenticate")
"""The headers that are compared."""

REQUEST_ID = "<request-id>"
WORDS = "<words>"

_PATTERNS = (
    (re.compile(r"req-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), REQUEST_ID),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<uuid without dashes>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?!\d)"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"), "<time in seconds>"),
)
_PARAMETERS = re.compile(r'\?([^"? ]+=[^"? ]*)')
"""Query parameters, whose order does not matter."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer as it was received."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The body, read as JSON; None where there is none or where it is something else."""
        try:
            return json.loads(self.raw)
        except ValueError:
            return None


Normal = dict[str, Any]
"""An answer as it is compared: ``status``, ``body``, and ``headers``: those that are not as usual,
None for one that is lacking."""

UNASKED: Normal = {"status": "not asked: an earlier answer lacks what it needs"}


def normalise(answer: Answer, request: Request, names: Mapping[str, str]) -> Normal:
    """Return the answer as it is compared and recorded.

    :param names: what to write instead of which text: ids, URLs
    """
    found: Normal = {"status": answer.status}
    headers = {key.lower(): value for key, value in answer.headers.items()}
    if unusual := _unusual(headers, request, names):
        found["headers"] = unusual
    if answer.raw:
        found["body"] = _body(answer, request, names)
    return found


def _unusual(
    headers: Mapping[str, str], request: Request, names: Mapping[str, str]
) -> dict[str, str | None]:
    seen = {key: _plain(headers[key], names) for key in HEADERS if key in headers}
    if set(IDS) <= headers.keys() and headers[IDS[0]] != headers[IDS[1]]:
        seen[IDS[1]] = "<another request-id>"
    usual = {
        VERSION: request.version or "volume 3.0",
        "vary": "OpenStack-API-Version",
        "content-type": "application/json",
        **dict.fromkeys(IDS, REQUEST_ID),
    }
    return {key: seen.get(key) for key in HEADERS if seen.get(key) != usual.get(key)}


def _body(answer: Answer, request: Request, names: Mapping[str, str]) -> Any:
    text = _plain(answer.raw.decode(errors="replace"), names)
    try:
        body = json.loads(text)
    except ValueError:
        return "<HTML>" if "<html>" in text.lower() else text
    if isinstance(body, dict):
        _hide_words(body)
        _sort_attachments(body)
        for key, wanted in request.only.items():
            field, values = next(iter(wanted.items()))
            if isinstance(body.get(key), list):
                body[key] = [item for item in body[key] if item.get(field) in values]
    return body


def _hide_words(body: dict[str, Any]) -> None:
    if "message" in body and "code" in body:
        body["message"] = WORDS
    for content in body.values():
        if isinstance(content, dict) and "message" in content and "code" in content:
            content["message"] = WORDS
    for content in [body.get("message"), *(body.get("messages") or [])]:
        if isinstance(content, dict) and "user_message" in content:
            content["user_message"] = WORDS


def _sort_attachments(body: dict[str, Any]) -> None:
    """Sort the attachments of a volume, which Cinder returns in the order of the database."""
    for volume in [body.get("volume"), *(body.get("volumes") or [])]:
        if isinstance(volume, dict) and "attachments" in volume:
            volume["attachments"].sort(key=json.dumps)


def _in_order(match: re.Match[str]) -> str:
    return "?" + "&".join(sorted(match[1].split("&")))


def _plain(text: str, names: Mapping[str, str]) -> str:
    for value in sorted(names, key=len, reverse=True):
        text = text.replace(value, names[value])
    for pattern, name in _PATTERNS:
        text = pattern.sub(name, text)
    return _PARAMETERS.sub(_in_order, text)

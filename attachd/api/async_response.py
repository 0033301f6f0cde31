# SPDX-License-Identifier: Apache-2.0
"""The preference of a client for an asynchronous response: Prefer: respond-async (RFC 7240).

A handler gets it as its argument ``async_response``.  It answers 202 as soon as the request is
stored, and does not wait for the work.
"""

import re
from typing import Final

import webob

from attachd.api.links import Links

HEADER: Final = "Prefer"
APPLIED: Final = "Preference-Applied"
RESPOND_ASYNC: Final = "respond-async"

# RFC 7240, 2: the name of each preference, without its value and its parameters.
_PREFERENCE: Final = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]*)(?:"(?:[^"\\]|\\.)*"?|[^,"])*')


class AsyncPreference:
    """The preference of one request; a handler that honours it calls :meth:`accept`."""

    def __init__(self, response: webob.Response, links: Links) -> None:
        self._response = response
        self._links = links

    def accept(self, collection: str, identity: str) -> None:
        """Answer 202, with the URL of the resource to poll: ``accept("attachments", id)``."""
        self._response.status_int = 202
        self._response.headers[APPLIED] = RESPOND_ASYNC
        self._response.headers["Location"] = self._links.of(collection, identity)[0]["href"]


def requested(
    request: webob.Request, response: webob.Response, links: Links
) -> AsyncPreference | None:
    """Return the preference of a request; None without one, or with a malformed header."""
    header: str | None = request.headers.get(HEADER)
    if header is None or RESPOND_ASYNC not in _names(header):
        return None
    return AsyncPreference(response, links)


def _names(header: str) -> set[str]:
    names, position = set(), 0
    while position <= len(header):
        found = _PREFERENCE.match(header, position)
        assert found is not None  # the pattern also matches the empty string
        names.add(found[1].lower())
        position = found.end() + 1
    return names

# SPDX-License-Identifier: Apache-2.0
"""What a client would like: Prefer: respond-async (RFC 7240); given to handlers as ``later``.

Whoever prefers not to wait is answered 202 when it is noted down what is to be done.
"""

import re
from typing import Final

import webob

from attachd.api.links import Links

HEADER: Final = "Prefer"
APPLIED: Final = "Preference-Applied"
RESPOND_ASYNC: Final = "respond-async"

# RFC 7240, 2: the name of each preference, whatever its value and its parameters.
_PREFERENCE: Final = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]*)(?:"(?:[^"\\]|\\.)*"?|[^,"])*')


class Later:
    """The wish not to wait; whoever grants it says so in the answer."""

    def __init__(self, response: webob.Response, links: Links) -> None:
        self._response = response
        self._links = links

    def accept(self, collection: str, identity: str) -> None:
        """Have 202 answered, with the URL of what to look at: ``accept("attachments", id)``."""
        self._response.status_int = 202
        self._response.headers[APPLIED] = RESPOND_ASYNC
        self._response.headers["Location"] = self._links.of(collection, identity)[0]["href"]


def later(request: webob.Request, response: webob.Response, links: Links) -> Later | None:
    """Return the wish not to wait; None: there is none, as where the header is broken."""
    sent: str | None = request.headers.get(HEADER)
    if sent is None or RESPOND_ASYNC not in _names(sent):
        return None
    return Later(response, links)


def _names(sent: str) -> set[str]:
    names, position = set(), 0
    while position <= len(sent):
        found = _PREFERENCE.match(sent, position)
        assert found is not None  # it matches nothing as well
        names.add(found[1].lower())
        position = found.end() + 1
    return names

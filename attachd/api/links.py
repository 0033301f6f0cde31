# SPDX-License-Identifier: Apache-2.0
"""Links in responses, built for one request; a handler takes them as its argument ``links``."""

from collections.abc import Mapping
import re
from typing import TypedDict
import urllib.parse

import webob

from attachd.conf import CONF


class Link(TypedDict):
    """One link."""

    rel: str
    href: str


class Links:
    """Builder of links, which have the project id if the URL of the request has it."""

    def __init__(self, request: webob.Request, url_project: str | None) -> None:
        self._request = request
        self._project = f"/{url_project}" if url_project else ""

    def of(self, collection: str, identity: str) -> list[Link]:
        """Return the links of one resource: ``of("volumes", volume.id)``."""
        path = f"{self._project}/{collection}/{identity}"
        base = root(self._request)
        return [
            {"rel": "self", "href": f"{base}/v3{path}"},
            {"rel": "bookmark", "href": f"{base}{path}"},
        ]

    def next(self, path: str, query: Mapping[str, str], marker: str) -> list[Link]:
        """Return the link to the page after ``marker``.

        :param path: of the collection, as in its endpoint: "/volumes/detail"
        :param query: the query parameters of the present request
        """
        left_out = {"marker", "offset"}
        parameters = {key: text for key, text in query.items() if key not in left_out}
        parameters["marker"] = marker
        href = f"{root(self._request)}/v3{self._project}{path}"
        return [{"rel": "next", "href": f"{href}?{urllib.parse.urlencode(parameters)}"}]


def root(request: webob.Request) -> str:
    """Return the URL above ``/v3``, without a trailing slash."""
    public: str | None = CONF.api.public_endpoint
    url = public or str(request.application_url)
    return re.sub(r"/v3/?$", "", url).rstrip("/")

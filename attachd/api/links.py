# SPDX-License-Identifier: Apache-2.0
"""Links in answers, built for one request; a handler gets them as its argument ``links``."""

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
    """Makes links with the project id in them, if the request had it in its URL."""

    def __init__(self, request: webob.Request, url_project: str | None) -> None:
        self._request = request
        self._project = f"/{url_project}" if url_project else ""

    def of(self, collection: str, identity: str) -> list[Link]:
        """Return the links of one thing: ``of("volumes", volume.id)``."""
        path = f"{self._project}/{collection}/{identity}"
        base = root(self._request)
        return [
            {"rel": "self", "href": f"{base}/v3{path}"},
            {"rel": "bookmark", "href": f"{base}{path}"},
        ]

    def next(self, path: str, query: Mapping[str, str], marker: str) -> list[Link]:
        """Return the link to the page after ``marker``.

        :param path: of the collection, as in its endpoint: "/volumes/detail"
        :param query: the parameters of the present request
        """
        left_out = {"marker", "offset"}
        parameters = {key: text for key, text in query.items() if key not in left_out}
        parameters["marker"] = marker
        href = f"{root(self._request)}/v3{self._project}{path}"
        return [{"rel": "next", "href": f"{href}?{urllib.parse.urlencode(parameters)}"}]


def root(request: webob.Request) -> str:
    """Return the URL above ``/v3``, without a slash at its end."""
    public: str | None = CONF.api.public_endpoint
    url = public or str(request.application_url)
    return re.sub(r"/v3/?$", "", url).rstrip("/")

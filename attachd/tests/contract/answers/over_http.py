# SPDX-License-Identifier: Apache-2.0
"""Send requests over HTTP, one connection per request; for tools/compare_answers.py."""

import http.client
import urllib.parse

from attachd.tests.contract.answers.normal import Answer
from attachd.tests.contract.answers.playing import Ask, Sent

_SECONDS = 90


def asking(url: str) -> Ask:
    """Return a function that sends requests to the server at a URL such as http://127.0.0.1:8776."""
    place = urllib.parse.urlsplit(url).netloc

    def ask(sent: Sent) -> Answer:
        connection = http.client.HTTPConnection(place, timeout=_SECONDS)
        try:
            connection.request(sent.method, sent.path, sent.content or None, sent.headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    return ask

# SPDX-License-Identifier: Apache-2.0
"""Long and chunked requests to the API under uWSGI, with etc/attachd/uwsgi.ini."""

import http.client
import json
import unittest
import urllib.parse

import requests

from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

HEADERS = {"X-Auth-Token": "root:p", "OpenStack-API-Version": "volume 3.71"}
TOKEN = "Bearer a-secret-token"


@full_only("deployments")
class UwsgiRequestsTest(unittest.TestCase):
    """An API without a manager."""

    def setUp(self):
        super().setUp()
        self.deployment = Deployment(self, "sqlite")
        self.server = self.deployment.start_uwsgi("--processes=1")

    def request(self, method, path, **options):
        headers = {**HEADERS, "Authorization": TOKEN, **options.pop("headers", {})}
        url = f"{self.deployment.url}/v3{path}"
        return requests.request(method, url, headers=headers, timeout=TIMEOUT, **options)

    def test_long_headers_are_accepted(self):
        for size in (4_100, 20_000, 60_000):
            with self.subTest(size):
                answer = self.request("GET", "/volumes", headers={"X-Long": "x" * size})
                self.assertEqual(200, answer.status_code)

    def test_long_query_is_used(self):
        for size in (2_100, 20_000, 33_000, 60_000):
            with self.subTest(size):
                filling = "&".join(["name=" + "%79" * 255] * (size // 770 + 1))
                answer = self.request("GET", f"/volumes?{filling}&limit=wrong")
                self.assertEqual(400, answer.status_code, answer.text[:200])
                self.assertIn("'wrong'", answer.text)

    def test_chunked_body_is_read(self):
        body = json.dumps({"volume_type": {"name": "chunked"}}).encode()
        chunks = (body[i : i + 7] for i in range(0, len(body), 7))
        headers = {"Content-Type": "application/json"}
        answer = self.request("POST", "/types", data=chunks, headers=headers)
        self.assertEqual(200, answer.status_code, answer.text)
        self.assertEqual("chunked", answer.json()["volume_type"]["name"])

    def test_large_chunked_body_is_refused_with_message(self):
        answer = self.request("POST", "/types", data=(b"x" * 65_536 for _ in range(40)))
        self.assertEqual(413, answer.status_code, answer.text)
        self.assertIn("114688 bytes", answer.text)

    def test_interrupted_chunked_body_is_answered_as_incomplete(self):
        url = urllib.parse.urlsplit(self.deployment.url)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.putrequest("POST", "/v3/types")
        for name, value in {**HEADERS, "Transfer-Encoding": "chunked"}.items():
            connection.putheader(name, value)
        connection.endheaders(b"5\r\nhello\r\nnonsense\r\n\r\n")
        answer = connection.getresponse()
        self.assertEqual(400, answer.status, answer.read())

    def test_log_never_has_value_of_header(self):
        answered = []
        for size in (4_000, *range(32_000, 33_000, 100), 70_000):
            try:
                self.request("GET", f"/volumes?name={'x' * size}")
            except requests.ConnectionError:
                continue
            answered.append(size)
        self.assertIn(4_000, answered)
        wait_until(
            lambda: "unable to add HTTP_" in self.server.output, lambda: self.server.output[-3000:]
        )
        self.assertIn("invalid HTTP request size", self.server.output)
        self.assertNotIn("a-secret-token", self.server.output)
        self.assertNotIn("root:p", self.server.output)

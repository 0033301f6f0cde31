# SPDX-License-Identifier: Apache-2.0
"""Requests as uWSGI passes them on; see functional.test_uwsgi_requests for a real one."""

import io
import unittest
from unittest import mock

from attachd.api import uwsgi_requests
from attachd.tests.fixtures.conf_fixture import override


class CompleteRequestsTest(unittest.TestCase):
    def complete(self, chunks=(), **environ):
        inner = mock.Mock()
        server = mock.Mock(chunked_read=mock.Mock(side_effect=[*chunks, b""]))
        uwsgi_requests.CompleteRequests(inner, server)(environ, mock.Mock())
        return inner.call_args.args[0]

    def test_missing_query_is_that_of_request_uri(self):
        got = self.complete(REQUEST_URI="/v3/a?x=1&y=a?b", QUERY_STRING="")
        self.assertEqual("x=1&y=a?b", got["QUERY_STRING"])

    def test_present_or_empty_query_is_kept(self):
        got = self.complete(REQUEST_URI="/v3/?x=2", QUERY_STRING="x=1")
        self.assertEqual("x=1", got["QUERY_STRING"])
        for uri in ("/v3/", "/v3/?", ""):
            self.assertEqual("", self.complete(REQUEST_URI=uri, QUERY_STRING="")["QUERY_STRING"])

    def chunked(self, *chunks):
        return self.complete(
            chunks,
            QUERY_STRING="",
            PATH_INFO="/",
            HTTP_TRANSFER_ENCODING=" Chunked",
            **{"wsgi.input": io.BytesIO(b"")},
        )

    def test_chunked_body_gets_length(self):
        got = self.chunked(b"hello", b" world")
        self.assertEqual(("11", b"hello world"), (got["CONTENT_LENGTH"], got["wsgi.input"].read()))
        self.assertNotIn("HTTP_TRANSFER_ENCODING", got)

    def test_large_chunked_body_is_not_kept(self):
        override(self, "max_request_body_size", 1024, group="api")
        got = self.chunked(*[b"x" * 1000] * 100)
        self.assertEqual("2000", got["CONTENT_LENGTH"])
        self.assertEqual(b"x" * 2000, got["wsgi.input"].read())

    def test_interrupted_chunked_body_is_shorter_than_its_length(self):
        got = self.chunked(b"hello", OSError("closed"))
        self.assertEqual(("6", b"hello"), (got["CONTENT_LENGTH"], got["wsgi.input"].read()))


class RedactedTest(unittest.TestCase):
    def test_value_of_header_is_removed(self):
        line = (
            b"[WARNING] unable to add HTTP_X_AUTH_TOKEN=a to uwsgi packet b to uwsgi packet, c\n"
        )
        self.assertEqual(
            b"[WARNING] unable to add HTTP_X_AUTH_TOKEN=(not shown) to uwsgi packet, c\n",
            uwsgi_requests.redacted(line),
        )

    def test_other_message_is_kept(self):
        line = b"invalid HTTP request size (max 65535)...skip\n"
        self.assertEqual(line, uwsgi_requests.redacted(line))

    def test_master_keeps_its_log(self):
        with mock.patch("os.dup2") as dup2:
            uwsgi_requests.redact_log(mock.Mock(worker_id=lambda: 0))
        dup2.assert_not_called()

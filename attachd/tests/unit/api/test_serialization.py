# SPDX-License-Identifier: Apache-2.0
"""Tests of bodies and query strings."""

import datetime
import io
import json
import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import serialization
from attachd.conf import CONF
from attachd.tests.fixtures import conf_fixture


def request(raw=b"{}", content_type="application/json", length=None, **environ):
    return webob.Request(
        {
            "REQUEST_METHOD": "POST",
            "CONTENT_TYPE": content_type,
            "CONTENT_LENGTH": str(len(raw)) if length is None else length,
            "wsgi.input": io.BytesIO(raw),
            **environ,
        }
    )


class BodyTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        CONF.set_override("max_request_body_size", 2048, group="api")
        self.addCleanup(CONF.clear_override, "max_request_body_size", group="api")

    def test_any_json_value_is_parsed(self):
        for value in ({"a": [1, 2.5, None]}, [], "text", 7, None, {"ü": "💾"}, {"": "\x01"}):
            with self.subTest(value):
                self.assertEqual(
                    value, serialization.read_json(request(json.dumps(value).encode()))
                )

    def test_media_type_may_have_parameters(self):
        for kind in ("application/json; charset=utf-8", "application/vnd.openstack.volume+json"):
            with self.subTest(kind):
                self.assertEqual({}, serialization.read_json(request(content_type=kind)))

    def test_other_media_types_return_415(self):
        for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded", "x"):
            with self.subTest(kind), self.assertRaises(exception.UnsupportedMediaType):
                serialization.read_json(request(content_type=kind))

    def test_missing_content_type_returns_400(self):
        with self.assertRaisesRegex(exception.BadRequest, "no Content-Type"):
            serialization.read_json(request(content_type=""))

    def test_missing_body_returns_400(self):
        for length in ("0", ""):
            with self.subTest(length), self.assertRaisesRegex(exception.BadRequest, "no body"):
                serialization.read_json(request(b"", length=length))

    def test_malformed_json_returns_400(self):
        broken = (
            b"{",
            b"{'a': 1}",
            b"nonsense",
            b"\xff\xfe{\x00}\x00",
            b'{"a": "\xff"}',
            b"\xef\xbb\xbf{}",
            b"NaN",
            b'{"a": Infinity}',
            b'{"a": 1e400}',
            b'{"a": -1e999}',
            b"1" * 2000 * 3,
            b'{"a": "\x00"}',
            b'{"a": "line\nbreak"}',
            b'{"\xed\xa0\x80": 1}',
        )
        CONF.set_override("max_request_body_size", 100_000, group="api")
        for raw in broken:
            with (
                self.subTest(raw[:20]),
                self.assertRaisesRegex(exception.BadRequest, "^Malformed request body: "),
            ):
                serialization.read_json(request(raw))

    def test_number_with_too_many_digits_returns_400(self):
        with self.assertRaisesRegex(exception.BadRequest, "body: a number has too many digits"):
            serialization.parse(b'{"size": 1' + b"0" * 5000 + b"}")

    def test_deep_nesting_returns_400(self):
        deep = b"[" * 32 + b"]" * 32
        self.assertEqual(json.loads(deep), serialization.parse(deep))
        for raw in (b"[" * 33 + b"]" * 33, b"[" * 50_000, b'{"a":' * 33 + b"1" + b"}" * 33):
            with (
                self.subTest(raw[:10]),
                self.assertRaisesRegex(exception.BadRequest, "nested deeper than 32 levels"),
            ):
                serialization.parse(raw)

    def test_wide_document_is_accepted(self):
        wide = {"a": [[] for _ in range(100)], "b": "[[{" * 100, 'c"[\\': '"[' * 50}
        self.assertEqual(wide, serialization.parse(json.dumps(wide).encode()))

    def test_text_that_cannot_be_stored_is_named(self):
        for text, field in (
            ('{"a": {"b": "x\\u0000"}}', "a.b"),
            ('{"a": [1, "\\ud800"]}', "a.1"),
            ('{"a": {"k\\u0000": 1}}', "a"),
            ('"\\uDFFF"', "body"),
        ):
            with self.subTest(text), self.assertRaises(exception.InvalidInput) as raised:
                serialization.parse(text.encode())
            self.assertEqual(field, raised.exception.details["field"])

    def test_key_of_serialized_object_is_named(self):
        for text, field in (
            ('{"attachd_object.name": "Volume"}', "attachd_object.name"),
            ('{"a": [{"b": {"attachd_object.x": 1}}]}', "a.0.b.attachd_object.x"),
            ('{"a": {"attachd\\u005fobject.data": {}}}', "a.attachd_object.data"),
            ('{"a": {"\\u0061ttachd_object.\\u00e4": {}}}', "a.attachd_object.\\xe4"),
        ):
            with self.subTest(text), self.assertRaises(exception.InvalidInput) as raised:
                serialization.parse(text.encode())
            self.assertEqual(field, raised.exception.details["field"])
        for text in ('{"a": "attachd_object.name"}', '{"attachd_object": {"name": 1}}'):
            self.assertEqual(json.loads(text), serialization.parse(text.encode()))

    def test_surrogate_pairs_are_accepted(self):
        for text in ('"\\ud83d\\udcbe"', '"\\\\u0000"', '"\\u0001"'):
            with self.subTest(text):
                self.assertEqual(json.loads(text), serialization.parse(text.encode()))

    def test_too_large_body_is_refused_and_drained(self):
        sent = request(b"x" * 10_000)
        with self.assertRaisesRegex(exception.TooLarge, "at most 2048 bytes"):
            serialization.read_json(sent)
        self.assertEqual(b"", sent.environ["wsgi.input"].read())

    def test_too_large_body_that_ends_early_is_refused(self):
        with self.assertRaises(exception.TooLarge):
            serialization.read_json(request(b"x" * 10_000, length="20000"))

    def test_body_in_chunks_is_read_to_its_end(self):
        class Slow(io.BytesIO):
            def read(self, size=-1):
                return super().read(min(size, 3))

        sent = request(b'{"a": "bcdef"}', **{"wsgi.input": Slow(b'{"a": "bcdef"}and more')})
        self.assertEqual({"a": "bcdef"}, serialization.read_json(sent))

    def test_disconnected_client_returns_400(self):
        gone = mock.Mock(read=mock.Mock(side_effect=OSError("it hung up")))
        for source in (io.BytesIO(b'{"a": '), gone):
            with (
                self.subTest(source),
                self.assertRaisesRegex(exception.BadRequest, "ended before"),
            ):
                serialization.read_json(request(b'{"a": "bcdef"}', **{"wsgi.input": source}))

    def test_chunked_body_is_limited(self):
        chunked = {"length": "", "wsgi.input_terminated": True}
        self.assertEqual({}, serialization.read_json(request(**chunked)))
        with self.assertRaises(exception.TooLarge):
            serialization.read_json(request(b"x" * 10_000, **chunked))

    def test_undecoded_chunked_body_returns_400(self):
        with self.assertRaisesRegex(exception.BadRequest, "send a Content-Length"):
            serialization.read_json(
                request(b"2\r\n{}", length="", HTTP_TRANSFER_ENCODING="chunked")
            )


class QueryTest(unittest.TestCase):
    def test_query_is_parsed(self):
        cases = {
            "": {},
            "a=b&c=": {"a": "b", "c": ""},
            "a=1&a=2": {"a": "2"},
            "name=%C3%BC+x": {"name": "ü x"},
        }
        for text, expected in cases.items():
            with self.subTest(text):
                self.assertEqual(expected, serialization.read_query(text))

    def test_invalid_query_returns_400(self):
        for text in ("a=%FF", "a=%00", "a=%0A", "%01=a", "a&" * 101 + "b=1"):
            with self.subTest(text[:10]), self.assertRaises(exception.BadRequest):
                serialization.read_query(text)

    def test_query_with_control_characters_names_parameter(self):
        for text, name in (("limit=%00", "limit"), ("x" * 200 + "=%0A", "x" * 100)):
            with (
                self.subTest(text[:10]),
                self.assertRaisesRegex(exception.InvalidInput, f"field/attribute {name}\\. "),
            ):
                serialization.read_query(text)


class SegmentsTest(unittest.TestCase):
    def test_unreadable_segment_returns_404(self):
        serialization.check_segments(("x" * 255, "ü", "a b"))
        for value in ("x" * 256, "a\x00", "a\n"):
            with self.subTest(value[:3]), self.assertRaises(exception.NotFound):
                serialization.check_segments(("a", value))


class TimesTest(unittest.TestCase):
    def test_time_has_microseconds_and_no_zone(self):
        moment = datetime.datetime(2026, 1, 31, 12)  # noqa: DTZ001  as the tables store it
        written = json.loads(serialization.encode({"at": moment}))
        self.assertEqual({"at": "2026-01-31T12:00:00.000000"}, written)

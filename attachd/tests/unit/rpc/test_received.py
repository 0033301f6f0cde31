# SPDX-License-Identifier: Apache-2.0
"""Tests of the limits of messages; functional/test_agent_attacks.py has those with a broker."""

import bz2
import lzma
import struct
import unittest
from unittest import mock
import zlib

from amqp import (  # type: ignore[import-untyped]
    basic_message,
    method_framing,
    serialization,
    spec,
)
from kombu import compression
from kombu.transport import pyamqp

from attachd.rpc import received

BODY = b'{"a": 1}'


def arrived(body=BODY, **properties):
    """Return a message as amqp delivers it."""
    form = {"content_type": "application/json", "content_encoding": "utf-8"} | properties
    msg = mock.Mock(body=body, properties=form, delivery_tag=1, delivery_info={})
    channel = mock.Mock(no_ack_consumers=None)
    return pyamqp.Channel.Message(msg, channel)


def compressed(body, name):
    return arrived(body, application_headers={"compression": name})


def header(size, properties=b"\0\0"):
    """Return the header of content for a body of so many bytes."""
    return struct.pack(">HxxQ", 60, size) + properties


def delivery(key):
    """Return the arguments of a delivery."""
    texts = [bytes([len(text)]) + text for text in (b"1", b"exchange", key)]
    return bytes(4) + texts[0] + bytes(9) + texts[1] + texts[2]


class ContentTest(unittest.TestCase):
    def make(self, key=b"key"):
        return received.Content(frame_method=spec.Basic.Deliver, frame_args=delivery(key))

    def test_unreadable_properties_are_left_out(self):
        text = b"\x80\0\x02\xff\xfe"  # a content type
        for properties in (text, b"\xff\xff"):
            content = self.make()
            content.inbound_header(header(1, properties))
            self.assertEqual({}, content.properties)
            content.inbound_body(b"x")
            self.assertEqual((True, b"x"), (content.ready, content.body))

    def test_routing_key_that_is_no_text_is_left_out(self):
        for key, expected in ((b"key", "key"), (b"a\xff", "")):
            arguments = self.make(key).frame_args
            self.assertEqual(expected, serialization.loads("sLbss", arguments, 4)[0][-1])

    def test_body_beyond_limit_is_not_kept(self):
        content = self.make()
        content.inbound_header(header(received.MAX_SIZE + 1))
        content.inbound_body(bytes(received.MAX_SIZE))
        self.assertFalse(content.ready)
        content.inbound_body(b"x")
        self.assertTrue(content.ready)
        self.assertFalse(content.body)

    def test_names_of_amqp_exist(self):
        self.assertTrue(hasattr(method_framing, "Message"))
        for name in ("inbound_header", "inbound_body"):
            self.assertTrue(hasattr(basic_message.Message, name), name)


class MessageTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(pyamqp.Channel, "Message", pyamqp.Message))
        self.enterContext(mock.patch.object(method_framing, "Message", method_framing.Message))
        decoders = dict(compression._decoders)
        self.addCleanup(compression._decoders.update, decoders)
        received.limit()

    def assert_refused(self, message, reason):
        with self.assertRaisesRegex(received.Refused, reason):
            _ = message.payload

    def test_json_is_accepted(self):
        self.assertEqual({"a": 1}, arrived().payload)

    def test_compression_by_options_of_oslo_messaging_is_accepted(self):
        for name, packed in (("gzip", zlib.compress(BODY)), ("bz2", bz2.compress(BODY))):
            with self.subTest(name):
                alias = {"bz2": "application/x-bz2"}.get(name, name)
                self.assertEqual({"a": 1}, compressed(packed, alias).payload)

    def test_other_types_and_compressions_are_refused(self):
        for content_type in (None, "text/plain", "application/x-python-serialize"):
            self.assert_refused(arrived(content_type=content_type), "type is not JSON")
        message = compressed(lzma.compress(BODY), "xz")
        self.assert_refused_or_broken(message)

    def assert_refused_or_broken(self, message):
        self.assertTrue(message.errors)
        with self.assertRaises(received.Refused):
            message.decode()

    def test_large_messages_are_refused(self):
        with mock.patch.object(received, "MAX_SIZE", 100):
            self.assert_refused(arrived(b"1" * 101), "more than 100 bytes")
            self.assertTrue(arrived(b"1" * 100).payload)
            for packed, name in (
                (zlib.compress(b"1" * 101), "gzip"),
                (bz2.compress(b"1" * 101), "bzip2"),
            ):
                self.assert_refused_or_broken(compressed(packed, name))

    def test_acknowledged_message_is_not_rejected(self):
        message = arrived()
        message.ack()
        message.reject()
        message.channel.basic_reject.assert_not_called()
        other = arrived()
        other.reject()
        other.channel.basic_reject.assert_called_once_with(1, requeue=False)

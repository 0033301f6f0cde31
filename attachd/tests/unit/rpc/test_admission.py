# SPDX-License-Identifier: Apache-2.0
"""What the server for agents accepts; functional/test_agent_floods.py has the attacks."""

import bz2
import json
import unittest
from unittest import mock
import zlib

import oslo_messaging as messaging

from attachd.rpc import admission, path_check
from attachd.tests.fixtures import metric_samples

HEX = "0123456789abcdef" * 2
FORM = {"content_type": "application/json"}
CALL = {
    "method": "ask",
    "version": "2.1",
    "args": {"host": "h", "key": "k"},
    "_msg_id": HEX,
    "_unique_id": HEX,
    "_reply_q": "reply_h_0",
}


class Endpoint:
    target = messaging.Target(version="2.1")

    def ask(self, _context, host, key):
        """Answer nothing."""

    def _hidden(self, _context, host, key):
        """Be no call."""


def envelope(**message):
    return json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(message)}).encode()


class ReaderTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.reader = admission.Reader(Endpoint())

    def read(self, body=None, host="h", **properties):
        body, form = body or envelope(**CALL), FORM | properties
        text = admission.decompress(body, form, admission.MAX_REPORT_SIZE)
        return self.reader.read(text, form, host)

    def assert_refused(self, reason, body, host="h", **properties):
        with self.assertRaises(admission.Refused) as caught:
            self.read(body, host, **properties)
        self.assertEqual(reason, caught.exception.reason, body[:200])

    def test_call_of_agent_is_read(self):
        request = self.read(expiration="2500")
        self.assertEqual(
            {key: CALL[key] for key in ("method", "args", "version")}, request.message
        )
        self.assertEqual((HEX, HEX), (request.message_id, request.unique_id))
        self.assertEqual("reply_h_0", request.reply_q)
        self.assertEqual(2.5, request.timeout)
        self.assertIsNone(self.read(host=admission.STRANGERS, expiration="x").timeout)

    def test_probe_is_read(self):
        body = envelope(method=path_check.METHOD, args={"sender": "s"})
        request = self.read(body)
        self.assertIsNone(request.reply_q)
        self.assertEqual({"sender": "s"}, request.message["args"])

    def test_context_of_sender_is_not_believed(self):
        known = "req-" + "a" * 36
        said = {"project_id": "p", "roles": ["admin"], "self": 1, "request_id": known}
        message = CALL | {f"_context_{name}": value for name, value in said.items()}
        expected = {"is_admin": True, "request_id": known}
        self.assertEqual(expected, self.read(envelope(**message)).context)
        message["_context_request_id"] = "a\nb"
        self.assertEqual({"is_admin": True}, self.read(envelope(**message)).context)

    def test_messages_that_no_agent_sends_are_refused(self):
        for reason, name, values in (
            ("reply", "_reply_q", (None, "", 7, [HEX], "reply_g_0", "reply_h_00")),
            ("form", "_msg_id", (None, 7, [HEX], "x")),
            ("form", "_unique_id", (None, 7, {}, "x")),
            ("form", "version", (None, 7, "x", [2], "2.1\n")),
            ("form", "args", (None, 7, [], "x")),
            ("form", "method", (None, 7, [])),
            ("method", "method", ("", "x", "_hidden", "target", "__init__")),
            ("method", "namespace", ("x", {})),
            ("method", "args", ({}, {"host": "h"}, CALL["args"] | {"more": 1})),
            ("host", "args", ({"host": "g", "key": "k"}, {"host": 1, "key": "k"})),
        ):
            for value in values:
                with self.subTest(name, value=value):
                    self.assert_refused(reason, envelope(**CALL | {name: value}))

    def test_malformed_envelopes_are_refused(self):
        for body in (
            b"\xff",
            b"1",
            b"[]",
            b"{}",
            b"[" * 30_000,
            b'{"oslo.version": "2.0", "oslo.message": {}}',
            b'{"oslo.version": "2.0", "oslo.message": "[1]"}',
            b'{"oslo.version": 2, "oslo.message": "{}"}',
            json.dumps({"oslo.version": "2.0", "oslo.message": "[" * 30_000}).encode(),
        ):
            self.assert_refused("form", body)

    def test_large_messages_are_refused_before_they_are_read(self):
        large = bytes(admission.MAX_REPORT_SIZE + 1)
        with mock.patch.object(json, "loads") as loads:
            self.assert_refused("size", large)
            for name, pack in (("x-gzip", zlib.compress), ("x-bz2", bz2.compress)):
                headers = {"compression": f"application/{name}"}
                self.assert_refused("size", pack(large), application_headers=headers)
        loads.assert_not_called()

    def test_message_with_many_values_is_refused_before_it_is_read(self):
        for values in ("[]," * 20_000, "[" * 20_000 + "]" * 20_000, '{"":0},' * 20_000):
            self.assert_refused("size", envelope(**CALL | {"args": values * 2}))

    def test_largest_report_has_fewer_values(self):
        device = {"attachment_id": "a", "volume_id": "v", "path": "", "size_bytes": 0}
        paths = {"paths": [{"name": "", "state": "failed"}]}
        for item in (device, device | paths):
            text = envelope(args=[item])
            fill = (admission.MAX_REPORT_SIZE - 100) // (
                len(envelope(args=[item] * 2)) - len(text)
            )
            text = envelope(args=[item] * fill)
            self.assertLess(text.count(b",") + text.count(b"{") + text.count(b"["), 20_500)
            self.assert_refused("form", text)

    def test_body_that_is_no_bytes_is_refused(self):
        headers = {"compression": "application/x-gzip"}
        self.assert_refused("form", "text", application_headers=headers)
        self.assert_refused("form", "text")

    def test_types_and_compressions_of_options_are_accepted_alone(self):
        for name, pack in (("x-gzip", zlib.compress), ("x-bz2", bz2.compress)):
            headers = {"compression": f"application/{name}"}
            body = pack(envelope(**CALL))
            self.assertEqual(HEX, self.read(body, application_headers=headers).message_id)
            self.assert_refused("form", b"x", application_headers=headers)
        for name in ("application/x-lzma", 7, ["gzip"]):
            self.assert_refused(
                "form", envelope(**CALL), application_headers={"compression": name}
            )
        for name in (None, "text/plain", "application/x-python-serialize"):
            self.assert_refused("form", envelope(**CALL), content_type=name)


class BudgetTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(admission, "time", clock))
        self.budget = admission.Budget("h")

    def test_host_may_send_a_burst_and_then_a_rate(self):
        for _ in range(int(admission.BURST)):
            self.assertTrue(self.budget.may_send())
            self.budget.charge(0)
        self.assertFalse(self.budget.may_send())
        self.now += 1.5 / admission.RATE
        self.assertTrue(self.budget.may_send())
        self.now += 10**6
        self.assertTrue(self.budget.may_send())
        for _ in range(int(admission.BURST)):
            self.budget.charge(0)
        self.assertFalse(self.budget.may_send())

    def test_large_message_counts_as_many(self):
        self.budget.charge(int(admission.BURST * admission.SIZE_OF_ONE))
        self.assertFalse(self.budget.may_send())

    def test_messages_that_wait_are_limited_by_number_and_size(self):
        for size, count in ((1, admission.MAX_WAITING), (admission.MAX_WAITING_SIZE, 1)):
            for _ in range(count):
                self.assertTrue(self.budget.may_send())
                self.budget.add_waiting(size)
            self.assertFalse(self.budget.may_send())
            for _ in range(count):
                self.budget.remove_waiting(size)
            self.assertTrue(self.budget.may_send())


class DropLogTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(admission, "time", clock))
        self.drops = admission.DropLog()

    def test_one_line_a_minute_counts_drops_of_a_host(self):
        metric_samples.use(self)
        with self.assertLogs("attachd.rpc.admission", "WARNING") as logs:
            for _ in range(1000):
                self.drops.record("h", "form")
            self.drops.record("h", "size")
            self.drops.record("", "form")
            self.drops.flush()
            self.now += admission.LOG_INTERVAL
            self.drops.flush()
            self.drops.flush()
        first, strangers, second = (record.getMessage() for record in logs.records)
        self.assertEqual("Host h: 1 messages to managers were dropped (form: 1)", first)
        self.assertEqual(
            "Host h: 1000 messages to managers were dropped (form: 999, size: 1)", second
        )
        self.assertIn("Hosts without a queue of their own: 1 ", strangers)
        name = "attachd_agent_messages_dropped_total"
        self.assertEqual(1001, metric_samples.sample_value(name, reason="form"))

    def test_number_of_hosts_is_limited(self):
        with mock.patch.object(admission, "MAX_LOGGED_HOSTS", 2):
            logged = [self.drops.record(f"h{number}", "form") for number in range(5)]
        self.assertEqual([True, True, True, False, False], logged)

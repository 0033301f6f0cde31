# SPDX-License-Identifier: Apache-2.0
"""Answers of agents' calls, and what becomes of those that cannot be sent."""

import json
import sys
import unittest
from unittest import mock

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
import oslo_messaging as messaging

from attachd import exception
from attachd.rpc import answers

MODULES = frozenset({exception.__name__})


def failed(error):
    """Return what sys.exc_info() has of an error."""
    try:
        raise error
    except type(error):
        return sys.exc_info()


def returned(failure):
    """Return what a failure is at the caller."""
    content = json.loads(json.dumps(answers.pack("1", None, failure)))
    try:
        return answers.unpack(content, MODULES)
    except Exception as error:  # noqa: BLE001  any
        return error


class FormTest(unittest.TestCase):
    def test_result_is_returned(self):
        content = answers.pack("1", {"a": 1}, None)
        self.assertEqual(("1", True), (content["_msg_id"], content["ending"]))
        self.assertEqual({"a": 1}, answers.unpack(content, MODULES))

    def test_errors_of_attachd_and_python_are_raised_as_they_were(self):
        error = returned(failed(exception.AttachmentNotFound(attachment_id="a1")))
        self.assertIs(exception.AttachmentNotFound, type(error))
        self.assertEqual(str(exception.AttachmentNotFound(attachment_id="a1")), str(error))
        self.assertEqual(("x",), returned(failed(ValueError("x"))).args)

    def test_other_errors_are_remote_errors(self):
        for error in (messaging.MessagingTimeout("x"), json.JSONDecodeError("x", "y", 1)):
            self.assertEqual(type(error).__name__, returned(failed(error)).exc_type)

    def test_failure_that_names_no_error_is_a_remote_error(self):
        for failure in (
            {"module": "builtins", "class": "exit", "args": [1]},
            {"module": "builtins", "class": "SystemExit"},
            {"module": "os", "class": "system", "args": ["x"]},
            {"module": "builtins", "class": "UnicodeDecodeError", "args": [1]},
            {},
        ):
            with self.assertRaises(messaging.RemoteError):
                answers.unpack({"failure": json.dumps(failure)}, MODULES)


class AnswerSenderTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        clock = mock.Mock(monotonic=lambda: self.now, sleep=self.sleep)
        self.enterContext(mock.patch.object(answers, "time", clock))
        self.sender = mock.Mock()
        self.answers = answers.AnswerSender(self.sender, 30)

    def sleep(self, seconds):
        self.now += seconds

    def send(self):
        self.answers.send("reply_h_0", "1", "result", None)

    def test_answer_is_sent_to_its_queue(self):
        self.send()
        content, exchange, queue = self.sender.send.call_args.args
        self.assertEqual(("result", "", "reply_h_0"), (content["result"], exchange, queue))

    def test_answer_waits_for_a_queue_that_returns(self):
        missing = messaging.MessageUndeliverable(None, "", "", {})
        self.sender.send.side_effect = [missing, messaging.MessageDeliveryFailure("away"), None]
        self.send()
        self.assertEqual(3, self.sender.send.call_count)

    def test_answers_to_a_missing_queue_are_dropped_after_a_while_and_then_at_once(self):
        self.sender.send.side_effect = messaging.MessageUndeliverable(None, "", "", {})
        self.send()
        self.assertGreaterEqual(self.now, 30)
        before = self.sender.send.call_count
        self.send()
        self.assertEqual(before, self.sender.send.call_count)

    def test_answer_to_a_full_queue_is_given_up_at_once(self):
        full = messaging.MessageDeliveryFailure("full")
        full.__cause__ = amqp_exceptions.MessageNacked()
        self.sender.send.side_effect = full
        self.assertRaises(messaging.MessageDeliveryFailure, self.send)
        self.sender.send.assert_called_once()

    def test_answer_in_a_long_outage_is_given_up(self):
        self.sender.send.side_effect = messaging.MessageDeliveryFailure("away")
        self.assertRaises(messaging.MessageDeliveryFailure, self.send)
        self.assertGreaterEqual(self.now, 30)

# SPDX-License-Identifier: Apache-2.0
"""Calls of agents; functional/test_agent_accounts.py has a real broker."""

import json
import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd import exception
from attachd.context import get_admin_context
from attachd.rpc import answers, call_client, transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.unit.rpc.test_admission import FORM, envelope

TARGET = messaging.Target(exchange="x", topic="t", version="3.0")


class CallClientTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.receiver = self.enterContext(mock.patch.object(call_client, "Receiver"))
        self.draw = mock.Mock(return_value="reply_h_3")
        self.replies = call_client.Replies(transport.agent_transport_url(), self.draw)
        self.sender = mock.Mock()
        self.client = call_client.CallClient(
            self.sender, self.replies, TARGET, 0.01, transport.Serializer()
        )

    def answer(self, reply=None, failure=None):
        """Have each message be answered when it is sent."""

        def send(content, *_more):
            (queue,) = self.receiver.call_args.args[2]
            body = envelope(**answers.pack(content["_msg_id"], reply, failure))
            queue.receive(mock.Mock(body=body, properties=FORM))

        self.sender.send.side_effect = send

    def call(self):
        return self.client.call(get_admin_context(), "ask", host="h")

    def test_call_returns_the_answer_to_its_message(self):
        self.answer({"a": 1})
        self.assertEqual([{"a": 1}] * 2, [self.call(), self.call()])
        content, exchange, topic, timeout = self.sender.send.call_args.args
        self.assertEqual(("x", "t", 0.01), (exchange, topic, timeout))
        self.assertEqual(("ask", {"host": "h"}), (content["method"], content["args"]))
        self.assertEqual(("3.0", "reply_h_3"), (content["version"], content["_reply_q"]))
        self.assertTrue(content["_context_is_admin"])
        self.draw.assert_called_once_with()
        self.receiver.return_value.start_now.assert_called_once_with()

    def test_call_raises_the_error_of_its_answer(self):
        error = exception.AttachmentNotFound(attachment_id="a1")
        self.answer(failure=(type(error), error, None))
        self.assertRaises(exception.AttachmentNotFound, self.call)

    def test_call_without_answer_times_out(self):
        self.assertRaises(messaging.MessagingTimeout, self.call)
        self.assertEqual({}, self.replies._waiting)

    def test_call_during_an_outage_fails_and_the_next_one_tries_again(self):
        self.receiver.return_value.start_now.side_effect = messaging.MessageDeliveryFailure("away")
        self.assertRaises(messaging.MessageDeliveryFailure, self.call)
        self.receiver.return_value.start_now.side_effect = None
        self.answer("answer")
        self.assertEqual("answer", self.call())

    def test_messages_that_answer_nothing_are_dropped(self):
        self.replies.start()
        (queue,) = self.receiver.call_args.args[2]
        for body in (b"", json.dumps([1]).encode(), envelope(_msg_id=[1]), envelope(_msg_id="2")):
            message = mock.Mock(body=body, properties=FORM)
            queue.receive(message)
            message.channel.basic_ack.assert_called_once_with(message.delivery_tag)

    def test_reply_queue_is_declared_and_ends_with_the_process(self):
        self.replies.start()
        (queue,) = self.receiver.call_args.args[2]
        connection = mock.MagicMock()
        queue.declare(connection)
        channel = connection.channel.return_value.__enter__.return_value
        self.assertEqual("reply_h_3", channel.queue_declare.call_args.args[0])
        self.replies.stop()
        self.replies.stop()
        self.receiver.return_value.stop.assert_called_once_with()

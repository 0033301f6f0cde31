# SPDX-License-Identifier: Apache-2.0
"""What is kept of an answer about an attachment, and made of it later."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import idempotency
from attachd.api.attachments import repetition

RESERVED = {"attachment": {"id": "a1", "status": "reserved", "connection_info": {}}}
CONNECTED = {
    "attachment": {"id": "a1", "connection_info": {"auth_password": "x"}, "attached_host": "h"}
}


class RecipeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "view"):
            setattr(self, name, self.enterContext(mock.patch.object(repetition, name)))
        self.view.shown.return_value = {
            "attachment": {"id": "a1", "status": "attached", "connection_info": {"now": 1}}
        }
        self.Attachment.get.return_value = mock.Mock(agent=None)
        self.ctx = mock.Mock()

    def remade(self, answer):
        return repetition.RECIPE.remake(self.ctx, "a1", repetition.RECIPE.keep(answer))

    def test_a_reservation_is_answered_as_it_was(self):
        self.assertEqual(RESERVED, self.remade(RESERVED))
        self.view.shown.assert_not_called()

    def test_a_connection_is_read_again_and_stands_where_it_stood(self):
        self.assertNotIn("auth_password", str(repetition.RECIPE.keep(CONNECTED)))
        again = self.remade(CONNECTED)["attachment"]
        self.assertEqual({**CONNECTED["attachment"], "connection_info": {"now": 1}}, again)
        self.assertEqual(list(CONNECTED["attachment"]), list(again))

    def test_what_an_agent_sees_to_is_answered_as_it_is(self):
        self.Attachment.get.return_value = mock.Mock(agent="node-1")
        self.assertEqual(self.view.shown.return_value, self.remade(RESERVED))

    def test_what_is_gone_is_said_to_be(self):
        self.Attachment.get.side_effect = exception.AttachmentNotFound(attachment_id="a1")
        for answer in (RESERVED, CONNECTED):
            with self.assertRaisesRegex(idempotency.KeyOutlived, "attachment a1, has been"):
                self.remade(answer)

# SPDX-License-Identifier: Apache-2.0
"""Deleting by force: what is asked for, and what is left in writing."""

import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api.attachments import forced
from attachd.db import messages
from attachd.db.paging import Page
from attachd.objects import Attachment
from attachd.rpc import manager_api
from attachd.tests import asking, hearing, rows

OWN = {"OpenStack-API-Version": "volume 3.71, attachd 1.0"}
SERVER = "11111111-2222-3333-4444-555555555555"


def request(query="", **headers):
    return webob.Request.blank(f"/?{query}", headers=headers or OWN)


class WantedTest(unittest.TestCase):
    def test_it_is_asked_for_by_a_truth_value(self):
        for query, expected in (("", False), ("force=true", True), ("force=0", False)):
            self.assertIs(expected, forced.is_wanted(request(query)), query)

    def test_what_is_neither_true_nor_false_is_refused_by_name(self):
        for value in ("", "maybe", "%20", "2"):
            with self.assertRaisesRegex(exception.InvalidInput, "force.*true or false"):
                forced.is_wanted(request(f"force={value}"))

    def test_without_the_opt_in_it_does_not_exist(self):
        plain = {"OpenStack-API-Version": "volume 3.71"}
        self.assertFalse(forced.is_wanted(request("force=true", **plain)))
        self.assertFalse(forced.is_wanted(request("force=maybe", **plain)))


class RemoveTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.detach = self.enterContext(mock.patch.object(manager_api, "force_detach"))
        self.detach.return_value = []
        self.ctx = asking.context(*asking.ADMIN)
        self.volume = rows.add_volume(multiattach=True)["id"]

    def attachment(self, state):
        row = rows.add_attachment(self.volume, state, instance_uuid=SERVER)
        return Attachment.get(self.ctx, row["id"])

    def remove(self, state, query="", allowed_states=None):
        attachment = self.attachment(state)
        answer = forced.remove(self.ctx, request(query), attachment, allowed_states)
        return attachment, answer

    def told(self):
        return [row["facts"] for row in messages.page({}, Page(limit=9))]

    def test_whatever_may_be_connected_is_the_managers_who_tells_its_owner(self):
        seen = frozenset({"connect_failed"})
        attachment, answer = self.remove("attached", allowed_states=seen)
        self.detach.assert_called_once_with(self.ctx, attachment, seen)
        self.assertEqual({"attachments": []}, answer)
        self.assertEqual([], self.told())

    def test_a_reservation_needs_no_manager_and_its_owner_is_told(self):
        other = self.attachment("attached").id
        attachment, answer = self.remove("reserved")
        self.detach.assert_not_called()
        self.assertEqual([other], [each["id"] for each in answer["attachments"]])
        self.assertEqual([{"user_id": "u", "attachment_id": attachment.id}], self.told())

    def test_an_owner_who_cannot_be_told_keeps_nothing(self):
        with mock.patch.object(messages, "create", side_effect=ZeroDivisionError):
            self.remove("reserved")
        self.assertEqual([], rows.attachments(self.volume))

    def test_it_is_logged(self):
        with self.assertLogs("attachd.api.attachments.forced", "WARNING") as logged:
            attachment, _answer = self.remove("attached", "override_reason=burnt")
        (text,) = logged.output
        for word in (attachment.id, self.volume, SERVER, "compute-1", "is attached", "user u",
                     "because: burnt"):  # fmt: skip
            self.assertIn(word, text)

    def test_listeners_are_told(self):
        heard = hearing.use(self)
        attachment, _answer = self.remove("attached", "override_reason=burnt")
        (message,) = heard.messages()
        self.assertEqual(
            ("volume.detach.force", "WARN"), (message["event_type"], message["priority"])
        )
        expected = {"attachment_id": attachment.id, "instance_uuid": SERVER,
                    "attached_host": "compute-1", "user_id": "u", "project_id": rows.PROJECT,
                    "reason": "burnt"}  # fmt: skip
        self.assertEqual(expected, message["payload"]["force"])

    def test_a_reason_that_cannot_be_read_stops_it(self):
        with self.assertRaisesRegex(exception.InvalidInput, "override_reason"):
            self.remove("attached", "override_reason=")
        self.detach.assert_not_called()

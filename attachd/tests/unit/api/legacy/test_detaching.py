# SPDX-License-Identifier: Apache-2.0
"""Which attachment is meant, and what is done when there is none."""

from unittest import mock

from attachd import exception
from attachd.api import guard
from attachd.api.legacy import detaching, handlers
from attachd.tests import asking, rows
from attachd.tests.rows import CONNECTOR
from attachd.tests.unit.api.legacy import case

UNKNOWN = "99999999-9999-4999-8999-999999999999"


class Case(case.Case):
    def detached(self):
        """Return the attachments that the manager was asked to detach, and where."""
        return self.asked(self.manager_api.detach)

    def asked(self, call):
        calls = call.call_args_list
        return [(call.args[1].id, call.args[1].backend) for call in calls]

    def several(self):
        rows.change_volume(self.volume_id, multiattach=True)
        return [rows.add_attachment(self.volume_id, "attached")["id"] for _ in range(2)]


class DetachTest(Case):
    def detach(self, body=None):
        detaching.detach(self.ctx, self.volume_id, body, self.request)

    def test_the_only_attachment_needs_no_name(self):
        mine = rows.add_attachment(self.volume_id, "connected")["id"]
        for body in (None, {}, {"attachment_id": None}, {"attachment_id": mine}):
            self.detach(body)
        self.assertEqual([(mine, "here@fake")] * 4, self.detached())

    def test_one_of_several_needs_a_name(self):
        first, _second = self.several()
        with self.assertRaisesRegex(
            exception.InvalidVolume, f"has 2 attachments: name the one.*{first} \\(attached\\), "
        ):
            self.detach()
        self.detach({"attachment_id": first})
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_what_never_came_to_be_is_meant_only_if_there_is_nothing_else(self):
        failed = rows.add_attachment(self.volume_id, "connect_failed")["id"]
        self.detach()
        mine = rows.add_attachment(self.volume_id, "attached")["id"]
        self.detach()
        self.assertEqual([failed, mine], [each for each, _backend in self.detached()])

    def test_an_attachment_of_another_volume_is_not_taken(self):
        other = rows.add_attachment(rows.add_volume()["id"], "attached")["id"]
        with self.assertRaisesRegex(exception.InvalidInput, "an attachment of volume"):
            self.detach({"attachment_id": other})

    def test_what_is_gone_is_detached(self):
        self.attach()
        handlers.begin_detaching(self.ctx, self.volume_id)
        self.detach({"attachment_id": UNKNOWN})
        self.assertEqual([], self.detached())
        self.assertEqual("detaching", self.status())

    def test_what_is_gone_takes_nothing_from_whoever_came_after_it(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.connect()
        self.detach({"attachment_id": UNKNOWN})
        self.assertEqual(("attaching", []), (self.status(), self.closed()))

    def test_somebody_else_may_be_faster(self):
        rows.add_attachment(self.volume_id, "attached")
        self.manager_api.detach.side_effect = exception.AttachmentNotFound(attachment_id="a")
        self.detach()

    def test_a_failure_is_told(self):
        rows.add_attachment(self.volume_id, "attached")
        self.manager_api.detach.side_effect = exception.Unavailable(reason="no")
        self.assertRaises(exception.Unavailable, self.detach)

    def test_a_volume_without_attachments_is_given_back(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.detach()
        self.assertEqual(("available", []), (self.status(), self.closed()))

    def test_and_what_was_opened_with_it_is_closed_first(self):
        handlers.reserve(self.ctx, self.volume_id)
        opened = self.connect()
        self.detach()
        self.assertEqual([(None, (), [opened])], self.closed())

    def test_what_others_have_begun_is_left_alone(self):
        rows.change_volume(self.volume_id, multiattach=True)
        handlers.reserve(self.ctx, self.volume_id)
        handlers.reserve(self.somebody_else(), self.volume_id)
        self.connect(user_id="other")
        self.detach()
        self.assertEqual([], self.closed())
        self.assertEqual(["hold", "connection"], self.kinds())

    def test_a_volume_in_maintenance_stays_as_it_is(self):
        rows.change_volume(self.volume_id, state="maintenance", status="maintenance")
        with self.assertRaisesRegex(exception.InvalidVolume, "maintenance"):
            self.detach()

    def test_nothing_happens_before_it_is_known_that_no_server_minds(self):
        mine = rows.add_attachment(self.volume_id, "attached")["id"]
        refused = exception.AttachmentInUse(reason="no")
        with (
            mock.patch.object(guard, "check_volume", side_effect=refused) as check,
            self.assertRaises(exception.AttachmentInUse),
        ):
            self.detach({"attachment_id": mine})
        check.assert_called_once_with(self.ctx, self.request, self.volume_id, mine)
        self.assertEqual([], self.detached())

    def test_readers_detach_nothing(self):
        self.ctx = asking.context("reader")
        with self.assertRaisesRegex(exception.Forbidden, "volume_actions:detach"):
            self.detach()


class ForceTest(Case):
    def setUp(self):
        super().setUp()
        self.ctx = asking.context(*asking.ADMIN)

    def detached(self):
        """Return those for which it is on record who had it done."""
        self.assertEqual([], self.asked(self.manager_api.detach))
        return self.asked(self.manager_api.force_detach)

    def force(self, **body):
        detaching.force_detach(self.ctx, self.volume_id, body, self.request)

    def test_exactly_the_one_that_was_named_is_detached(self):
        first, _second = self.several()
        self.force(attachment_id=first)
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_one_of_several_needs_a_name(self):
        self.several()
        with self.assertRaisesRegex(exception.InvalidVolume, "name the one"):
            self.force(connector=CONNECTOR)

    def test_a_connection_that_is_named_is_closed_unless_it_is_of_another_one(self):
        first, second = self.several()
        rows.change_attachment(first, user_id="u")
        mine = self.connect(user_id="u")
        self.connect(user_id="u", serves=second)
        self.connect(user_id="other")
        self.force(attachment_id=first, connector=CONNECTOR)
        self.assertEqual([(CONNECTOR, (), [mine])], self.closed())
        self.assertEqual([(first, "here@fake")], self.detached())

    def test_without_a_connector_only_the_attachments_own_are_closed(self):
        (first, _second) = self.several()
        self.connect()
        self.force(attachment_id=first, connector=None)
        self.assertEqual([], self.closed())

    def test_a_volume_without_attachments_is_given_back(self):
        handlers.reserve(self.ctx, self.volume_id)
        self.connect()
        self.force()
        self.assertEqual([(None, ())], self.closed())

    def test_whoever_has_begun_it_nothing_is_left(self):
        rows.change_volume(self.volume_id, multiattach=True)
        handlers.reserve(self.ctx, self.volume_id)
        handlers.reserve(self.somebody_else(), self.volume_id)
        self.force()
        self.assertEqual(("available", []), (self.status(), self.kinds()))

    def test_what_is_not_there_is_not_found(self):
        with self.assertRaisesRegex(exception.AttachmentNotFound, UNKNOWN):
            self.force(attachment_id=UNKNOWN)

    def test_only_administrators_may(self):
        self.ctx = asking.context()
        with self.assertRaisesRegex(exception.Forbidden, "force_detach"):
            self.force()

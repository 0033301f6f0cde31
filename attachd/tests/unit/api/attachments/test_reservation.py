# SPDX-License-Identifier: Apache-2.0
"""How reservations are made and given up, with the database replaced."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api.attachments import reservation
from attachd.states import UNREACHABLE, AttachmentState
from attachd.tests.unit.api.attachments import test_view

MOVED = exception.InvalidTransition(
    kind="Attachment", id="a1", source="connecting", event="be cancelled"
)


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("attachment_queries", "telling"):
            setattr(self, name, self.enterContext(mock.patch.object(reservation, name)))
        self.attachment = mock.Mock(wire_state="reserved", **test_view.row())


class MakeTest(Case):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "several"):
            setattr(self, name, self.enterContext(mock.patch.object(reservation, name)))
        self.several.denied.return_value = "a:rule"
        self.ctx, self.volume = mock.Mock(), mock.Mock()

    def make(self, **wanted):
        return reservation.make(self.ctx, self.volume, wanted, None)

    def test_it_is_told_what_is_asked_for_and_what_is_denied(self):
        self.assertIs(self.Attachment.reserve.return_value, self.make(mode="ro"))
        self.Attachment.reserve.assert_called_with(
            self.ctx, self.volume, None, "ro", "a:rule", None, None, None, None
        )
        self.make(instance_uuid="i", connector={"host": "h"})
        self.Attachment.reserve.assert_called_with(
            self.ctx, self.volume, "i", None, "a:rule", {"host": "h"}, None, None, None
        )

    def test_whose_agent_makes_the_device_is_told(self):
        wanted = {"connector": {"host": "h"}}
        reservation.make(self.ctx, self.volume, wanted, None, None, "h")
        self.assertEqual("h", self.Attachment.reserve.call_args.args[-1])

    def test_what_nobody_may_write_is_not_reserved_for_a_writer(self):
        refusal = exception.ModeNotAllowed(volume_id="v", reason="x")
        self.several.check_mode.side_effect = refusal
        with self.assertRaises(exception.ModeNotAllowed):
            self.make(mode="rw")
        self.several.check_mode.assert_called_with(self.volume, "rw")
        self.Attachment.reserve.assert_not_called()


class AllowAnewTest(unittest.TestCase):
    def test_who_has_a_key_may_make_it_anew(self):
        idempotency_claim = mock.Mock(held=True)
        reservation.allow_anew(idempotency_claim)
        idempotency_claim.release.assert_called_once_with()
        self.assertFalse(idempotency_claim.held)

    def test_what_has_an_answer_by_now_keeps_it(self):
        idempotency_claim = mock.Mock(held=True)
        idempotency_claim.release.side_effect = reservation.AlreadyMade
        reservation.allow_anew(idempotency_claim)
        self.assertTrue(idempotency_claim.held)
        reservation.allow_anew(None)


class DeniedTest(Case):
    """What is asked again when a connect is repeated."""

    def test_only_one_that_has_failed_is_asked_again(self):
        for name in ("Volume", "several"):
            setattr(self, name, self.enterContext(mock.patch.object(reservation, name)))
        ctx = mock.Mock()
        for state in AttachmentState:
            self.attachment.state = state.value
            if state in UNREACHABLE:
                self.several.denied.return_value = "a:rule"
                self.assertEqual("a:rule", reservation.denied(ctx, self.attachment))
                self.several.denied.assert_called_with(ctx, self.Volume.get.return_value)
            else:
                self.assertEqual("", reservation.denied(ctx, self.attachment))


class CancelTest(Case):
    def test_it_is_told_and_the_others_are_returned(self):
        remaining = test_view.row(id="a2")
        self.attachment_queries.brief_of_volumes.return_value = {"v1": [remaining]}
        self.assertEqual([remaining], reservation.cancel(self.attachment))
        self.telling.of_cancellation.assert_called_once_with(self.attachment, [remaining])

    def test_what_is_more_than_a_reservation_stays(self):
        for state in ("attaching", "attached", "detaching", "error_attaching", "error_detaching"):
            with self.subTest(state):
                self.attachment.wire_state = state
                self.assertIsNone(reservation.cancel(self.attachment))
        self.attachment.cancel.assert_not_called()
        self.telling.of_cancellation.assert_not_called()

    def test_what_has_just_become_more_stays(self):
        self.attachment.cancel.side_effect = MOVED
        self.assertIsNone(reservation.cancel(self.attachment))


class GiveUpTest(Case):
    def test_whatever_comes_of_it_is_no_error(self):
        away = exception.Unavailable(reason="no database")
        for outcome in (None, MOVED, away):
            self.attachment.cancel.reset_mock()
            self.attachment.cancel.side_effect = outcome
            with self.subTest(outcome):
                reservation.give_up(self.attachment)
                self.attachment.cancel.assert_called_once_with()
        self.telling.of_cancellation.assert_not_called()

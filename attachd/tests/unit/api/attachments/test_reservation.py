# SPDX-License-Identifier: Apache-2.0
"""How reservations are made and given up, with the database replaced."""

import unittest
from unittest import mock

from oslo_utils import timeutils

from attachd import exception
from attachd.api.attachments import policy, reservation
from attachd.api.volumes import policy as volume_policy
from attachd.db.types import store as types
from attachd.objects import Volume
from attachd.states import INACTIVE, AttachmentState
from attachd.tests import backends, databases, rows
from attachd.tests.unit.api.attachments import test_view

MOVED = exception.InvalidTransition(
    kind="Attachment", id="a1", source="connecting", event="be cancelled"
)


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("attachment_queries", "notify"):
            setattr(self, name, self.enterContext(mock.patch.object(reservation, name)))
        self.attachment = mock.Mock(wire_state="reserved", **test_view.row())


class MakeTest(Case):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "sharing_denied_rule", "check_requested_mode"):
            setattr(self, name, self.enterContext(mock.patch.object(reservation, name)))
        self.sharing_denied_rule.return_value = "a:rule"
        self.ctx, self.volume = mock.Mock(), mock.Mock()

    def make(self, **wanted):
        return reservation.get_or_create(self.ctx, self.volume, wanted, None)

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
        reservation.get_or_create(self.ctx, self.volume, wanted, None, None, "h")
        self.assertEqual("h", self.Attachment.reserve.call_args.args[-1])

    def test_what_nobody_may_write_is_not_reserved_for_a_writer(self):
        refusal = exception.InvalidVolumeAttachMode(volume_id="v", reason="x")
        self.check_requested_mode.side_effect = refusal
        with self.assertRaises(exception.InvalidVolumeAttachMode):
            self.make(mode="rw")
        self.check_requested_mode.assert_called_with(self.volume, "rw")
        self.Attachment.reserve.assert_not_called()


class AllowAnewTest(unittest.TestCase):
    def test_who_has_a_key_may_make_it_anew(self):
        idempotency_claim = mock.Mock(held=True)
        reservation.release_claim(idempotency_claim)
        idempotency_claim.release.assert_called_once_with()
        self.assertFalse(idempotency_claim.held)

    def test_what_has_an_answer_by_now_keeps_it(self):
        idempotency_claim = mock.Mock(held=True)
        idempotency_claim.release.side_effect = reservation.AlreadyMade
        reservation.release_claim(idempotency_claim)
        self.assertTrue(idempotency_claim.held)
        reservation.release_claim(None)


class DeniedTest(Case):
    """What is asked again when a connect is repeated."""

    def test_only_one_that_has_failed_is_asked_again(self):
        for name in ("Volume", "sharing_denied_rule"):
            setattr(self, name, self.enterContext(mock.patch.object(reservation, name)))
        ctx = mock.Mock()
        for state in AttachmentState:
            self.attachment.state = state.value
            if state in INACTIVE:
                self.sharing_denied_rule.return_value = "a:rule"
                self.assertEqual("a:rule", reservation.reconnect_denied_rule(ctx, self.attachment))
                self.sharing_denied_rule.assert_called_with(ctx, self.Volume.get.return_value)
            else:
                self.assertIsNone(reservation.reconnect_denied_rule(ctx, self.attachment))


class CancelTest(Case):
    def test_it_is_told_and_the_others_are_returned(self):
        remaining = test_view.row(id="a2")
        self.attachment_queries.brief_of_volumes.return_value = {"v1": [remaining]}
        self.assertEqual([remaining], reservation.cancel(self.attachment))
        self.notify.reservation_cancelled.assert_called_once_with(self.attachment, [remaining])

    def test_what_is_more_than_a_reservation_stays(self):
        for state in ("attaching", "attached", "detaching", "error_attaching", "error_detaching"):
            with self.subTest(state):
                self.attachment.wire_state = state
                self.assertIsNone(reservation.cancel(self.attachment))
        self.attachment.cancel.assert_not_called()
        self.notify.reservation_cancelled.assert_not_called()

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
                reservation.abandon(self.attachment)
                self.attachment.cancel.assert_called_once_with()
        self.notify.reservation_cancelled.assert_not_called()


class SharingRuleTest(unittest.TestCase):
    def denied(self, rules, *, multiattach=True, bootable=False):
        volume = mock.Mock(multiattach=multiattach, bootable=bootable, project_id="p")
        with mock.patch.object(
            reservation.rules, "allows", lambda _ctx, rule, _of: rule not in rules
        ):
            return reservation.sharing_denied_rule(mock.Mock(), volume)

    def test_whoever_may_is_denied_nothing(self):
        self.assertIsNone(self.denied(set(), bootable=True))

    def test_a_rule_is_for_all_and_another_one_for_bootable_volumes(self):
        for rules, bootable, expected in (
            ({volume_policy.MULTIATTACH}, False, volume_policy.MULTIATTACH),
            ({policy.BOOTABLE}, False, None),
            ({policy.BOOTABLE}, True, policy.BOOTABLE),
        ):
            with self.subTest(rules=rules, bootable=bootable):
                self.assertEqual(expected, self.denied(rules, bootable=bootable))

    def test_an_ordinary_volume_has_no_several(self):
        rules = {volume_policy.MULTIATTACH, policy.BOOTABLE}
        self.assertIsNone(self.denied(rules, multiattach=False, bootable=True))


class ModeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")

    def volume(self, specs=None, **values):
        if specs is not None:
            values["volume_type_id"] = types.create({"name": "t", "extra_specs": specs})["id"]
        return Volume.from_row(None, rows.add_volume(**values))

    def test_a_writer_is_refused_what_nobody_may_write(self):
        for volume, why in (
            (self.volume(admin_metadata={"readonly": "True"}), "it is read-only"),
            (self.volume({"mode": "RO"}), "its type says mode='RO'"),
        ):
            with self.assertRaisesRegex(exception.InvalidVolumeAttachMode, why):
                reservation.check_requested_mode(volume, "rw")
            reservation.check_requested_mode(volume, "ro")
            reservation.check_requested_mode(volume, None)

    def test_who_the_writer_is_is_decided_later(self):
        reservation.check_requested_mode(
            self.volume({"mode": "RO", "multiattach": "<is> True"}), "rw"
        )
        reservation.check_requested_mode(self.volume(), "rw")


OWN = (1, 0)


class MomentTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = timeutils.parse_isotime("2026-07-01T12:00:00Z").replace(tzinfo=None)
        timeutils.set_time_override(self.now)
        self.addCleanup(timeutils.clear_time_override)

    def _seconds(self, wanted, ext_version=OWN):
        moment = reservation.expiry_time(wanted, ext_version)
        return None if moment is None else (moment - self.now).total_seconds()

    def test_it_never_ends_unless_somebody_says_so(self):
        self.assertIsNone(self._seconds({}))
        self.assertEqual(60, self._seconds({"expires_in": 60}))

    def test_the_deployment_says_it_for_all(self):
        backends.override(self, "reservation_ttl", 600, "api")
        self.assertEqual(600, self._seconds({}, None))
        self.assertEqual(600, self._seconds({"connector": {"host": "here"}}, None))
        self.assertEqual(60, self._seconds({"expires_in": 60}))
        self.assertEqual(600, self._seconds({"expires_in": 600}))

    def test_a_request_cannot_ask_for_more(self):
        backends.override(self, "reservation_ttl", 600, "api")
        with self.assertRaisesRegex(exception.InvalidInput, "expires_in.*601.*600 seconds"):
            reservation.expiry_time({"expires_in": 601}, OWN)

    def test_it_can_be_asked_for_under_attachd_1_0_only(self):
        with self.assertRaisesRegex(exception.InvalidInput, "OpenStack-API-Version: attachd 1.0"):
            reservation.expiry_time({"expires_in": 60}, None)

    def test_what_is_connected_at_once_does_not_end(self):
        wanted = {"expires_in": 60, "connector": {"host": "here"}}
        with self.assertRaisesRegex(exception.InvalidInput, "connected at once"):
            reservation.expiry_time(wanted, OWN)

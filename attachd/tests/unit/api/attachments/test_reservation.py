# SPDX-License-Identifier: Apache-2.0
"""Tests of reservations; those of rules and modes use the database."""

import unittest
from unittest import mock

from oslo_utils import timeutils

from attachd import exception
from attachd.api.attachments import policy, reservation
from attachd.api.volumes import policy as volume_policy
from attachd.db.types import store as types
from attachd.objects import Volume
from attachd.states import INACTIVE, AttachmentState
from attachd.tests.fixtures import conf_fixture, databases, db_rows
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


class GetOrCreateTest(Case):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "sharing_denied_rule", "check_requested_mode"):
            setattr(self, name, self.enterContext(mock.patch.object(reservation, name)))
        self.sharing_denied_rule.return_value = "a:rule"
        self.ctx, self.volume = mock.Mock(), mock.Mock()

    def make(self, **requested):
        return reservation.get_or_create(self.ctx, self.volume, requested, None)

    def test_get_or_create_passes_request_and_denied_rule(self):
        self.assertIs(self.Attachment.reserve.return_value, self.make(mode="ro"))
        self.Attachment.reserve.assert_called_with(
            self.ctx, self.volume, None, "ro", "a:rule", None, None, None, None
        )
        self.make(instance_uuid="i", connector={"host": "h"})
        self.Attachment.reserve.assert_called_with(
            self.ctx, self.volume, "i", None, "a:rule", {"host": "h"}, None, None, None
        )

    def test_get_or_create_passes_agent(self):
        requested = {"connector": {"host": "h"}}
        reservation.get_or_create(self.ctx, self.volume, requested, None, None, "h")
        self.assertEqual("h", self.Attachment.reserve.call_args.args[-1])

    def test_get_or_create_of_read_only_volume_for_writing_is_refused(self):
        refusal = exception.InvalidVolumeAttachMode(volume_id="v", reason="x")
        self.check_requested_mode.side_effect = refusal
        with self.assertRaises(exception.InvalidVolumeAttachMode):
            self.make(mode="rw")
        self.check_requested_mode.assert_called_with(self.volume, "rw")
        self.Attachment.reserve.assert_not_called()


class ReleaseClaimTest(unittest.TestCase):
    def test_release_claim_allows_repeated_request_to_create(self):
        idempotency_claim = mock.Mock(held=True)
        reservation.release_claim(idempotency_claim)
        idempotency_claim.release.assert_called_once_with()
        self.assertFalse(idempotency_claim.held)

    def test_release_claim_with_stored_answer_keeps_claim(self):
        idempotency_claim = mock.Mock(held=True)
        idempotency_claim.release.side_effect = reservation.AlreadyMade
        reservation.release_claim(idempotency_claim)
        self.assertTrue(idempotency_claim.held)
        reservation.release_claim(None)


class ReconnectDeniedRuleTest(Case):
    """The rule that is checked again when a connect is repeated."""

    def test_reconnect_denied_rule_applies_to_failed_attachments_only(self):
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
    def test_cancel_notifies_and_returns_remaining(self):
        remaining = test_view.row(id="a2")
        self.attachment_queries.list_of_volumes.return_value = {"v1": [remaining]}
        self.assertEqual([remaining], reservation.cancel(self.attachment))
        self.notify.reservation_cancelled.assert_called_once_with(self.attachment, [remaining])

    def test_cancel_of_more_than_reservation_returns_none(self):
        for state in ("attaching", "attached", "detaching", "error_attaching", "error_detaching"):
            with self.subTest(state):
                self.attachment.wire_state = state
                self.assertIsNone(reservation.cancel(self.attachment))
        self.attachment.cancel.assert_not_called()
        self.notify.reservation_cancelled.assert_not_called()

    def test_cancel_with_concurrent_change_returns_none(self):
        self.attachment.cancel.side_effect = MOVED
        self.assertIsNone(reservation.cancel(self.attachment))


class AbandonTest(Case):
    def test_abandon_ignores_errors(self):
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

    def test_sharing_denied_rule_with_permission_returns_none(self):
        self.assertIsNone(self.denied(set(), bootable=True))

    def test_sharing_denied_rule_names_rule_for_bootable_volume(self):
        for rules, bootable, expected in (
            ({volume_policy.MULTIATTACH}, False, volume_policy.MULTIATTACH),
            ({policy.BOOTABLE}, False, None),
            ({policy.BOOTABLE}, True, policy.BOOTABLE),
        ):
            with self.subTest(rules=rules, bootable=bootable):
                self.assertEqual(expected, self.denied(rules, bootable=bootable))

    def test_sharing_denied_rule_without_multiattach_returns_none(self):
        rules = {volume_policy.MULTIATTACH, policy.BOOTABLE}
        self.assertIsNone(self.denied(rules, multiattach=False, bootable=True))


class CheckModeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")

    def volume(self, specs=None, **values):
        if specs is not None:
            values["volume_type_id"] = types.create({"name": "t", "extra_specs": specs})["id"]
        return Volume.from_row(None, db_rows.add_volume(**values))

    def test_check_mode_of_read_only_volume_for_writing_is_refused(self):
        for volume, why in (
            (self.volume(admin_metadata={"readonly": "True"}), "it is read-only"),
            (self.volume({"mode": "RO"}), "its type says mode='RO'"),
        ):
            with self.assertRaisesRegex(exception.InvalidVolumeAttachMode, why):
                reservation.check_requested_mode(volume, "rw")
            reservation.check_requested_mode(volume, "ro")
            reservation.check_requested_mode(volume, None)

    def test_check_mode_allows_writer_beside_others(self):
        reservation.check_requested_mode(
            self.volume({"mode": "RO", "multiattach": "<is> True"}), "rw"
        )
        reservation.check_requested_mode(self.volume(), "rw")


OWN = (1, 0)


class ExpiryTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = timeutils.parse_isotime("2026-07-01T12:00:00Z").replace(tzinfo=None)
        timeutils.set_time_override(self.now)
        self.addCleanup(timeutils.clear_time_override)

    def _seconds(self, requested, ext_version=OWN):
        moment = reservation.expiry_time(requested, ext_version)
        return None if moment is None else (moment - self.now).total_seconds()

    def test_expiry_time_without_limit_is_none(self):
        self.assertIsNone(self._seconds({}))
        self.assertEqual(60, self._seconds({"expires_in": 60}))

    def test_expiry_time_defaults_to_option(self):
        conf_fixture.override(self, "reservation_ttl", 600, "api")
        self.assertEqual(600, self._seconds({}, None))
        self.assertEqual(600, self._seconds({"connector": {"host": "here"}}, None))
        self.assertEqual(60, self._seconds({"expires_in": 60}))
        self.assertEqual(600, self._seconds({"expires_in": 600}))

    def test_expiry_time_above_limit_is_refused(self):
        conf_fixture.override(self, "reservation_ttl", 600, "api")
        with self.assertRaisesRegex(exception.InvalidInput, "expires_in.*601.*600 seconds"):
            reservation.expiry_time({"expires_in": 601}, OWN)

    def test_expiry_time_without_attachd_version_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "OpenStack-API-Version: attachd 1.0"):
            reservation.expiry_time({"expires_in": 60}, None)

    def test_expiry_time_with_connector_is_refused(self):
        requested = {"expires_in": 60, "connector": {"host": "here"}}
        with self.assertRaisesRegex(exception.InvalidInput, "connected at once"):
            reservation.expiry_time(requested, OWN)

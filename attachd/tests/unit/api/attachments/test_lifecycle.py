# SPDX-License-Identifier: Apache-2.0
"""Tests of reservations, connects and disconnects."""

import unittest
from unittest import mock

from oslo_utils import timeutils

from attachd import exception
from attachd.api.attachments import lifecycle, policy
from attachd.api.volumes import policy as volume_policy
from attachd.db.types import type_store
from attachd.objects import Attachment, NewAttachment, Volume
from attachd.states import INACTIVE, AttachmentState
from attachd.tests.fixtures import (
    api_context,
    captured_notifications,
    conf_fixture,
    databases,
    db_rows,
)
from attachd.tests.unit.api.attachments import test_view

MOVED = exception.InvalidTransition(
    kind="Attachment", id="a1", source="connecting", event="be cancelled"
)


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("attachment_queries", "notify_cancelled"):
            setattr(self, name, self.enterContext(mock.patch.object(lifecycle, name)))
        self.attachment = mock.Mock(wire_state="reserved", **test_view.row())


class GetOrCreateTest(Case):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "sharing_denied_rule", "check_requested_mode"):
            setattr(self, name, self.enterContext(mock.patch.object(lifecycle, name)))
        self.sharing_denied_rule.return_value = "a:rule"
        self.ctx, self.volume = mock.Mock(), mock.Mock()

    def make(self, **requested):
        return lifecycle.get_or_create(self.ctx, self.volume, requested)

    def test_get_or_create_passes_request_and_denied_rule(self):
        self.assertIs(self.Attachment.reserve.return_value, self.make(mode="ro"))
        self.Attachment.reserve.assert_called_with(
            self.ctx, self.volume, NewAttachment(mode="ro", denied_rule="a:rule")
        )
        self.make(instance_uuid="i", connector={"host": "h"})
        expected = NewAttachment(instance_uuid="i", connector={"host": "h"}, denied_rule="a:rule")
        self.Attachment.reserve.assert_called_with(self.ctx, self.volume, expected)

    def test_get_or_create_passes_host_as_agent(self):
        self.make(host="h", connector={"host": "h"})
        self.assertEqual("h", self.Attachment.reserve.call_args.args[-1].agent)

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
        lifecycle.release_claim(idempotency_claim)
        idempotency_claim.release.assert_called_once_with()
        self.assertFalse(idempotency_claim.held)

    def test_release_claim_with_stored_answer_keeps_claim(self):
        idempotency_claim = mock.Mock(held=True)
        idempotency_claim.release.side_effect = lifecycle.AlreadyMade
        lifecycle.release_claim(idempotency_claim)
        self.assertTrue(idempotency_claim.held)
        lifecycle.release_claim(None)


class ReconnectDeniedRuleTest(Case):
    """The rule that is checked again when a connect is repeated."""

    def test_reconnect_denied_rule_applies_to_failed_attachments_only(self):
        for name in ("Volume", "sharing_denied_rule"):
            setattr(self, name, self.enterContext(mock.patch.object(lifecycle, name)))
        ctx = mock.Mock()
        for state in AttachmentState:
            self.attachment.state = state.value
            if state in INACTIVE:
                self.sharing_denied_rule.return_value = "a:rule"
                self.assertEqual("a:rule", lifecycle.reconnect_denied_rule(ctx, self.attachment))
                self.sharing_denied_rule.assert_called_with(ctx, self.Volume.get.return_value)
            else:
                self.assertIsNone(lifecycle.reconnect_denied_rule(ctx, self.attachment))


class CancelTest(Case):
    def test_cancel_notifies_and_returns_remaining(self):
        remaining = test_view.row(id="a2")
        self.attachment_queries.list_of_volumes.return_value = {"v1": [remaining]}
        self.assertEqual([remaining], lifecycle.cancel(self.attachment))
        self.notify_cancelled.assert_called_once_with(self.attachment, [remaining])

    def test_cancel_of_more_than_reservation_returns_none(self):
        for state in ("attaching", "attached", "detaching", "error_attaching", "error_detaching"):
            with self.subTest(state):
                self.attachment.wire_state = state
                self.assertIsNone(lifecycle.cancel(self.attachment))
        self.attachment.cancel.assert_not_called()
        self.notify_cancelled.assert_not_called()

    def test_cancel_with_concurrent_change_returns_none(self):
        self.attachment.cancel.side_effect = MOVED
        self.assertIsNone(lifecycle.cancel(self.attachment))


class AbandonTest(Case):
    def test_abandon_ignores_errors(self):
        away = exception.Unavailable(reason="no database")
        for outcome in (None, MOVED, away):
            self.attachment.cancel.reset_mock()
            self.attachment.cancel.side_effect = outcome
            with self.subTest(outcome):
                lifecycle.abandon(self.attachment)
                self.attachment.cancel.assert_called_once_with()
        self.notify_cancelled.assert_not_called()


class SharingRuleTest(unittest.TestCase):
    def denied(self, rules, *, multiattach=True, bootable=False):
        volume = mock.Mock(multiattach=multiattach, bootable=bootable, project_id="p")
        with mock.patch.object(
            lifecycle.policy_rules, "allows", lambda _ctx, rule, _target: rule not in rules
        ):
            return lifecycle.sharing_denied_rule(mock.Mock(), volume)

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


class CheckModeTest(databases.DatabaseCase):
    def volume(self, specs=None, **values):
        if specs is not None:
            values["volume_type_id"] = type_store.create({"name": "t", "extra_specs": specs})["id"]
        return Volume.from_row(None, db_rows.add_volume(**values))

    def test_check_mode_of_read_only_volume_for_writing_is_refused(self):
        for volume, why in (
            (self.volume(admin_metadata={"readonly": "True"}), "it is read-only"),
            (self.volume({"mode": "RO"}), "its type says mode='RO'"),
        ):
            with self.assertRaisesRegex(exception.InvalidVolumeAttachMode, why):
                lifecycle.check_requested_mode(volume, "rw")
            lifecycle.check_requested_mode(volume, "ro")
            lifecycle.check_requested_mode(volume, None)

    def test_check_mode_allows_writer_beside_others(self):
        lifecycle.check_requested_mode(
            self.volume({"mode": "RO", "multiattach": "<is> True"}), "rw"
        )
        lifecycle.check_requested_mode(self.volume(), "rw")


class ExpiryTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = timeutils.parse_isotime("2026-07-01T12:00:00Z").replace(tzinfo=None)
        timeutils.set_time_override(self.now)
        self.addCleanup(timeutils.clear_time_override)

    def _seconds(self, requested):
        moment = lifecycle.expiry_time(mock.Mock(by_service=False), requested)
        return None if moment is None else (moment - self.now).total_seconds()

    def test_expiry_time_without_limit_is_none(self):
        self.assertIsNone(self._seconds({}))
        self.assertEqual(60, self._seconds({"expires_in": 60}))

    def test_expiry_time_defaults_to_option(self):
        conf_fixture.override(self, "reservation_ttl", 600, "api")
        self.assertEqual(600, self._seconds({}))
        self.assertEqual(600, self._seconds({"connector": {"host": "here"}}))
        self.assertEqual(60, self._seconds({"expires_in": 60}))
        self.assertEqual(600, self._seconds({"expires_in": 600}))

    def test_expiry_time_above_limit_is_refused(self):
        conf_fixture.override(self, "reservation_ttl", 600, "api")
        with self.assertRaisesRegex(exception.InvalidInput, "expires_in.*601.*600 seconds"):
            self._seconds({"expires_in": 601})

    def test_expiry_time_with_connector_is_refused(self):
        requested = {"expires_in": 60, "connector": {"host": "here"}}
        with self.assertRaisesRegex(exception.InvalidInput, "connected at once"):
            self._seconds(requested)


class NotifyTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)
        self.volume = db_rows.add_volume()["id"]

    def attachment(self, state):
        row = db_rows.add_attachment(self.volume, state)
        return Attachment.get(api_context.make_context(), row["id"])

    def test_attach_completed_sends_attach_end(self):
        lifecycle.notify_completed(self.attachment("attached"), "connected")
        self.assertEqual(["volume.attach.end"], self.notifications.event_types())

    def test_attach_completed_of_reservation_sends_start_and_end(self):
        lifecycle.notify_completed(self.attachment("attached"), "reserved")
        self.assertEqual(
            ["volume.attach.start", "volume.attach.end"], self.notifications.event_types()
        )

    def test_attach_completed_repeated_sends_nothing(self):
        lifecycle.notify_completed(self.attachment("attached"), "attached")
        self.assertEqual([], self.notifications.event_types())

    def test_legacy_attach_repeated_sends_nothing(self):
        volume = Volume.get(api_context.make_context(), self.volume)
        lifecycle.notify_legacy_attach(volume)
        self.assertEqual(
            ["volume.attach.start", "volume.attach.end"], self.notifications.event_types()
        )
        self.attachment("attached")
        lifecycle.notify_legacy_attach(Volume.get(api_context.make_context(), self.volume))
        self.assertEqual(2, len(self.notifications.event_types()))

    def test_reservation_cancelled_sends_detach_start_and_end(self):
        given_up = self.attachment("reserved")
        db_rows.remove_all()
        lifecycle.notify_cancelled(given_up, [])
        start, end = self.notifications.messages()
        self.assertEqual("volume.detach.start", start["event_type"])
        (shown,) = start["payload"]["volume_attachment"]
        self.assertEqual((given_up.id, "reserved"), (shown["id"], shown["attach_status"]))
        self.assertEqual("reserved", start["payload"]["status"])
        self.assertEqual("volume.detach.end", end["event_type"])
        self.assertEqual([], end["payload"]["volume_attachment"])


CONNECTOR = {"host": "h"}
CONNECTED = {"connection_info": test_view.ISCSI, "mode": "rw"}


class ConnectionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("Attachment", "agent_api", "manager_api", "reconcile", "view"):
            setattr(self, name, self.enterContext(mock.patch.object(lifecycle, name)))
        for name in ("connect_shared", "connect_exclusive", "disconnect"):
            setattr(
                self, name, self.enterContext(mock.patch.object(lifecycle.async_requests, name))
            )
        self.ctx, self.async_response = mock.Mock(), mock.Mock()
        self.manager_api.attach.return_value = CONNECTED
        self.manager_api.attach_exclusive.return_value = CONNECTED
        self.attachment = mock.Mock(
            id="a1", volume_id="v1", agent="h", connector=CONNECTOR, state="reserved"
        )

    def call_shared(self, async_response):
        return lifecycle.connect_shared(self.ctx, self.attachment, CONNECTOR, async_response)

    def call_exclusive(self, async_response):
        return lifecycle.connect_exclusive(
            self.ctx, self.attachment, CONNECTOR, "a:rule", async_response
        )

    def test_sync_connect_calls_manager_and_records_nothing(self):
        self.assertIs(self.view.show_connected.return_value, self.call_shared(None))
        self.manager_api.attach.assert_called_once_with(self.ctx, self.attachment, CONNECTOR, None)
        self.assertIs(self.view.show_connected.return_value, self.call_exclusive(None))
        self.manager_api.attach_exclusive.assert_called_once_with(
            self.ctx, self.attachment, CONNECTOR, "a:rule"
        )
        self.connect_shared.assert_not_called()
        self.connect_exclusive.assert_not_called()

    def need_secret(self):
        answer = {"connection_info": {"data": {"secret_uuid": "a1"}}, "mode": "rw"}
        for call in (self.manager_api.attach, self.manager_api.attach_exclusive):
            call.return_value = answer

    def test_failure_of_secret_ends_connect_whose_caller_has_no_id(self):
        self.need_secret()
        self.reconcile.define_secret.side_effect = exception.Conflict(reason="no secret")
        self.assertRaises(exception.Conflict, self.call_exclusive, None)
        self.manager_api.detach.assert_not_called()
        self.assertRaises(exception.Conflict, self.call_shared, None)
        self.manager_api.detach.assert_called_once_with(self.ctx, self.attachment, None)

    def test_secret_is_only_of_servers_and_services_and_where_the_connection_names_one(self):
        self.call_shared(None)
        self.reconcile.define_secret.assert_not_called()
        self.need_secret()
        self.ctx.by_service = False
        self.call_shared(None)
        self.ctx.by_service, self.attachment.instance_uuid = True, None
        self.call_exclusive(None)
        self.reconcile.define_secret.assert_not_called()

    def test_async_connect_records_request_before_notifying_manager(self):
        calls = mock.Mock()
        calls.attach_mock(self.connect_shared, "connect")
        calls.attach_mock(self.manager_api, "manager_api")
        self.assertIs(self.view.show_accepted.return_value, self.call_shared(self.async_response))
        self.assertEqual(
            [
                mock.call.connect("a1", "v1", CONNECTOR, None),
                mock.call.manager_api.process_pending(self.ctx, self.attachment),
            ],
            calls.mock_calls,
        )
        self.async_response.accept.assert_called_once_with("attachments", "a1")
        self.call_exclusive(self.async_response)
        self.connect_exclusive.assert_called_once_with("a1", "v1", CONNECTOR, "a:rule")

    def test_async_connect_of_connected_attachment_answers_at_once(self):
        self.connect_shared.side_effect = lifecycle.duplicates.AlreadyConnected(CONNECTED)
        self.assertIs(self.view.show_connected.return_value, self.call_shared(self.async_response))
        self.async_response.accept.assert_not_called()
        self.manager_api.process_pending.assert_not_called()

    def test_accept_with_failed_notification_succeeds(self):
        self.manager_api.process_pending.side_effect = exception.Unavailable(reason="away")
        self.call_shared(self.async_response)
        self.async_response.accept.assert_called_once_with("attachments", "a1")

    def test_accept_for_agent_notifies_agent(self):
        send = (self.ctx, self.attachment, self.async_response, lifecycle.notify_agent)
        self.assertIs(self.view.show_accepted.return_value, lifecycle.accept(*send))
        self.agent_api.reconcile.assert_called_once_with(self.ctx, "h", "a1")
        self.manager_api.process_pending.assert_not_called()
        self.agent_api.reconcile.side_effect = exception.AgentUnavailable(host="h", since="yet")
        lifecycle.accept(*send)
        self.assertEqual(2, self.async_response.accept.call_count)

    def test_connect_uses_connector_of_reservation(self):
        lifecycle.connect(self.ctx, self.attachment)
        self.manager_api.attach.assert_called_once_with(self.ctx, self.attachment, CONNECTOR, None)

    def test_refused_async_connect_sends_no_message(self):
        self.disconnect.side_effect = exception.InvalidTransition("no")
        with self.assertRaisesRegex(exception.InvalidTransition, "no"):
            lifecycle.disconnect_async(self.ctx, self.attachment, None, self.async_response)
        self.manager_api.process_pending.assert_not_called()
        self.async_response.accept.assert_not_called()

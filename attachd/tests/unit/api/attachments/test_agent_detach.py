# SPDX-License-Identifier: Apache-2.0
"""Tests of detaching with an agent: agent and manager are fakes, the database is real."""

from unittest import mock

from attachd import exception
from attachd.api.attachments import agent_detach
from attachd.db.agents import agent_transitions
from attachd.objects import Attachment
import attachd.rpc.agent_api
import attachd.rpc.manager_api
from attachd.states import AttachmentState
from attachd.tests.fixtures import api_context, conf_fixture, db_rows, fake_agent

HOST = "node-1"
WITH_DEVICE = ("connected", "attached", "withdrawing")
WITHOUT_DEVICE = sorted(set(AttachmentState) - {"held", *WITH_DEVICE})


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(HOST)
        self.ctx = api_context.make_context(attachd_version=(1, 0))
        self.patch(attachd.rpc.agent_api, "reconcile")
        for name in ("detach", "process_pending"):
            self.patch(attachd.rpc.manager_api, name)
        self.detach.return_value = []
        self.reconcile.side_effect = self.release_device

    def patch(self, where, name):
        setattr(self, name, self.enterContext(mock.patch.object(where, name)))

    def release_device(self, _ctx, host, attachment_id):
        agent_transitions.release(
            attachment_id, host, db_rows.get_attachment(attachment_id)["generation"]
        )

    def attachment(self, state, **values):
        values = {"agent": HOST, "device": "/dev/sdb", **values}
        row = db_rows.add_attachment(db_rows.add_volume()["id"], state, **values)
        return Attachment.get(self.ctx, row["id"])

    def state(self, attachment):
        return db_rows.get_attachment(attachment.id)["state"]

    def disconnect(self, attachment, allowed_states=None):
        return agent_detach.disconnect(self.ctx, attachment, allowed_states)


class DisconnectTest(Case):
    def test_disconnect_revokes_access_after_agent_released_device(self):
        for state in WITH_DEVICE:
            attachment = self.attachment(state)
            states = []
            self.detach.side_effect = lambda _ctx, now, _states, seen=states: (
                seen.append(self.state(now)) or []
            )
            with self.subTest(state):
                self.assertEqual({"attachments": []}, self.disconnect(attachment))
                self.reconcile.assert_called_with(self.ctx, HOST, attachment.id)
                self.assertEqual(["disconnecting"], states)

    def test_disconnect_without_possible_device_skips_agent(self):
        for state in WITHOUT_DEVICE:
            attachment = self.attachment(state)
            self.disconnect(attachment)
            self.assertEqual(state, self.state(attachment))
        self.reconcile.assert_not_called()
        self.assertEqual(len(WITHOUT_DEVICE), self.detach.call_count)

    def test_disconnect_of_attachment_with_new_device_revokes_nothing(self):
        attachment = self.attachment("connecting")
        allowed = []

        def detach(_ctx, _attachment, states):
            allowed.append(states)
            if len(allowed) == 1:
                db_rows.change_attachment(attachment.id, state="connected")
                raise exception.InvalidTransition("It has become attaching.")
            return []

        self.detach.side_effect = detach
        self.disconnect(attachment)
        self.reconcile.assert_called_once_with(self.ctx, HOST, attachment.id)
        for states in allowed:
            self.assertFalse(set(WITH_DEVICE) & {state.value for state in states})
        self.assertEqual("disconnecting", self.state(attachment))

    def test_disconnect_outside_allowed_states_is_refused(self):
        attachment = self.attachment("attached")
        with self.assertRaisesRegex(exception.InvalidTransition, "has become attached"):
            self.disconnect(attachment, frozenset({AttachmentState.RESERVED}))
        self.assertEqual("attached", self.state(attachment))
        self.reconcile.assert_not_called()

    def test_disconnect_without_agent_calls_manager_only(self):
        attachment = self.attachment("attached", agent=None)
        self.disconnect(attachment)
        self.detach.assert_called_once_with(self.ctx, attachment, None)
        self.reconcile.assert_not_called()

    def test_disconnect_with_unavailable_agent_changes_nothing_and_names_force(self):
        fake_agent.expire_heartbeat(HOST)
        for state in WITH_DEVICE:
            attachment = self.attachment(state)
            with self.assertRaisesRegex(exception.AgentUnavailable, f"{attachment.id}.force=true"):
                self.disconnect(attachment)
            self.assertEqual(state, self.state(attachment))
        self.reconcile.assert_not_called()
        self.detach.assert_not_called()

    def test_disconnect_with_device_in_use_keeps_attachment(self):
        attachment = self.attachment("attached")

        def keep(_ctx, host, attachment_id):
            agent_transitions.refuse_detach(attachment_id, host, 1, "in use by /mnt")

        self.reconcile.side_effect = keep
        with self.assertRaisesRegex(exception.DeviceBusy, "/mnt"):
            self.disconnect(attachment)
        self.assertEqual("attached", self.state(attachment))
        self.detach.assert_not_called()

    def test_disconnect_with_attachment_attached_again_is_refused(self):
        attachment = self.attachment("attached")
        self.reconcile.side_effect = lambda *_args: db_rows.change_attachment(
            attachment.id, state="attached"
        )
        with self.assertRaisesRegex(exception.Conflict, "has not released"):
            self.disconnect(attachment)
        self.detach.assert_not_called()

    def test_disconnect_with_failing_host_raises_its_reason(self):
        attachment = self.attachment("attached")

        def fail(_ctx, host, attachment_id):
            generation = db_rows.get_attachment(attachment_id)["generation"]
            agent_transitions.record_failure(attachment_id, host, generation, "no session")

        self.reconcile.side_effect = fail
        for _ in range(2):
            with self.assertRaisesRegex(exception.AgentError, "no session"):
                self.disconnect(Attachment.get(self.ctx, attachment.id))
            self.assertEqual("withdrawing", self.state(attachment))
        self.reconcile.side_effect = self.release_device
        self.disconnect(Attachment.get(self.ctx, attachment.id))
        self.assertEqual("disconnecting", self.state(attachment))

    def test_disconnect_with_undelivered_message_and_released_device_succeeds(self):
        for error in (
            exception.AgentUnavailable(host=HOST, since="yet"),
            exception.Unavailable(reason="The queue is away."),
        ):
            attachment = self.attachment("attached")

            def silent(*args, raised=error):
                self.release_device(*args)
                raise raised

            self.reconcile.side_effect = silent
            with self.subTest(type(error).__name__):
                self.assertEqual({"attachments": []}, self.disconnect(attachment))

    def test_disconnect_without_result_can_be_repeated(self):
        conf_fixture.override(self, "work_timeout", 1, "agent")
        for raised, error in (
            (exception.AgentTimeout, None),
            (exception.AgentUnavailable, exception.AgentUnavailable(host=HOST, since="yet")),
            (exception.Unavailable, exception.Unavailable(reason="The queue is away.")),
        ):
            attachment = self.attachment("attached")
            self.reconcile.side_effect = error
            self.reconcile.return_value = None
            with self.assertRaises(raised):
                self.disconnect(attachment)
            self.assertEqual("withdrawing", self.state(attachment))
            self.reconcile.side_effect = self.release_device
            self.disconnect(Attachment.get(self.ctx, attachment.id))
            self.assertEqual("disconnecting", self.state(attachment))

    def test_disconnect_with_concurrent_change_is_retried(self):
        attachment = self.attachment("attached")
        changed = exception.InvalidTransition("It has changed.")
        self.detach.side_effect = [changed, changed, changed]
        with self.assertRaises(exception.InvalidTransition):
            self.disconnect(attachment)
        self.detach.side_effect = [changed, []]
        self.assertEqual({"attachments": []}, self.disconnect(attachment))

    def test_disconnect_deleted_by_other_request_succeeds(self):
        for remove in (
            lambda attachment: db_rows.remove_attachment(attachment.id),
            lambda attachment: self.release_device(None, HOST, attachment.id),
        ):
            attachment = self.attachment("attached")
            other = db_rows.add_attachment(attachment.volume_id)["id"]
            self.reconcile.side_effect = lambda *_args, remove=remove, target=attachment: remove(
                target
            )
            gone = exception.AttachmentNotFound(attachment_id=attachment.id)
            self.detach.side_effect = gone
            remaining = self.disconnect(attachment)["attachments"]
            self.assertIn(other, [row["id"] for row in remaining])

    def test_disconnect_of_deleted_attachment_is_not_found(self):
        attachment = self.attachment("attached")
        db_rows.remove_attachment(attachment.id)
        with self.assertRaises(exception.AttachmentNotFound):
            self.disconnect(attachment)


class ReleaseDeviceTest(Case):
    def test_release_device_calls_agent_and_not_manager(self):
        attachment = self.attachment("attached")
        agent_detach.release_device(self.ctx, attachment, None)
        self.assertEqual("disconnecting", self.state(attachment))
        agent_detach.release_device(self.ctx, Attachment.get(self.ctx, attachment.id), None)
        self.reconcile.assert_called_once_with(self.ctx, HOST, attachment.id)
        self.detach.assert_not_called()

    def test_release_device_of_deleted_attachment_succeeds(self):
        attachment = self.attachment("attached")
        self.reconcile.side_effect = lambda *_args: db_rows.remove_attachment(attachment.id)
        agent_detach.release_device(self.ctx, attachment, None)


class AsyncTest(Case):
    def setUp(self):
        super().setUp()
        self.async_response = mock.Mock()
        self.reconcile.side_effect = None

    def disconnect(self, attachment, allowed_states=None):
        return agent_detach.disconnect_async(
            self.ctx, attachment, allowed_states, self.async_response
        )

    def test_async_disconnect_notifies_agent_without_waiting(self):
        attachment = self.attachment("attached")
        shown = self.disconnect(attachment)["attachment"]
        self.assertEqual(("detaching", "/dev/sdb"), (shown["status"], shown["device"]))
        self.reconcile.assert_called_once_with(self.ctx, HOST, attachment.id)
        self.async_response.accept.assert_called_once_with("attachments", attachment.id)
        self.process_pending.assert_not_called()
        self.assertEqual("withdrawing", self.state(attachment))

    def test_async_disconnect_with_unavailable_agent_changes_nothing(self):
        attachment = self.attachment("attached")
        fake_agent.expire_heartbeat(HOST)
        with self.assertRaises(exception.AgentUnavailable):
            self.disconnect(attachment)
        self.assertEqual("attached", self.state(attachment))
        self.async_response.accept.assert_not_called()

    def test_async_disconnect_without_device_notifies_manager(self):
        for attachment in (self.attachment("connecting"), self.attachment("attached", agent=None)):
            self.disconnect(attachment)
            self.assertEqual("disconnecting", self.state(attachment))
        self.assertEqual(2, self.process_pending.call_count)
        self.reconcile.assert_not_called()

    def test_async_disconnect_of_attachment_with_new_device_withdraws_it(self):
        attachment = self.attachment("connecting")
        db_rows.change_attachment(attachment.id, state="connected")
        self.assertEqual("detaching", self.disconnect(attachment)["attachment"]["status"])
        self.assertEqual("withdrawing", self.state(attachment))

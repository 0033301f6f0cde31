# SPDX-License-Identifier: Apache-2.0
"""Tests of detaching with an agent: agent and manager are fakes, the database is real."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api.attachments import agent_detach
from attachd.db.agents import transitions as agent_transitions
from attachd.objects import Attachment
import attachd.rpc.agent_api
import attachd.rpc.manager_api
from attachd.states import AttachmentState
from attachd.tests import agents, asking, rows

HOST = "node-1"
WITH_DEVICE = ("connected", "attached", "withdrawing")
WITHOUT_DEVICE = sorted(set(AttachmentState) - {"held", *WITH_DEVICE})


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        agents.report(HOST)
        self.ctx = asking.context()
        for name in ("reconcile", "request_reconcile"):
            self.patch(attachd.rpc.agent_api, name)
        for name in ("detach", "process_pending"):
            self.patch(attachd.rpc.manager_api, name)
        self.detach.return_value = []
        self.reconcile.side_effect = self.release_device

    def patch(self, where, name):
        setattr(self, name, self.enterContext(mock.patch.object(where, name)))

    def release_device(self, _ctx, host, attachment_id):
        agent_transitions.release(
            attachment_id, host, rows.attachment(attachment_id)["generation"]
        )

    def attachment(self, state, **values):
        values = {"agent": HOST, "device": "/dev/sdb", **values}
        row = rows.add_attachment(rows.add_volume()["id"], state, **values)
        return Attachment.get(self.ctx, row["id"])

    def state(self, attachment):
        return rows.attachment(attachment.id)["state"]

    def disconnect(self, attachment, allowed_states=None):
        return agent_detach.disconnect(self.ctx, attachment, allowed_states)


class DisconnectTest(Case):
    def test_disconnect_revokes_access_after_agent_released_device(self):
        for state in WITH_DEVICE:
            mine = self.attachment(state)
            found = []
            self.detach.side_effect = lambda _ctx, now, _states, f=found: (
                f.append(self.state(now)) or []
            )
            with self.subTest(state):
                self.assertEqual({"attachments": []}, self.disconnect(mine))
                self.reconcile.assert_called_with(self.ctx, HOST, mine.id)
                self.assertEqual(["disconnecting"], found)

    def test_disconnect_without_possible_device_skips_agent(self):
        for state in WITHOUT_DEVICE:
            mine = self.attachment(state)
            self.disconnect(mine)
            self.assertEqual(state, self.state(mine))
        self.reconcile.assert_not_called()
        self.assertEqual(len(WITHOUT_DEVICE), self.detach.call_count)

    def test_disconnect_of_attachment_with_new_device_revokes_nothing(self):
        mine = self.attachment("connecting")
        allowed = []

        def detach(_ctx, _attachment, states):
            allowed.append(states)
            if len(allowed) == 1:
                rows.change_attachment(mine.id, state="connected")
                raise exception.InvalidTransition("It has become attaching.")
            return []

        self.detach.side_effect = detach
        self.disconnect(mine)
        self.reconcile.assert_called_once_with(self.ctx, HOST, mine.id)
        for states in allowed:
            self.assertFalse(set(WITH_DEVICE) & {each.value for each in states})
        self.assertEqual("disconnecting", self.state(mine))

    def test_disconnect_outside_allowed_states_is_refused(self):
        mine = self.attachment("attached")
        with self.assertRaisesRegex(exception.InvalidTransition, "has become attached"):
            self.disconnect(mine, frozenset({AttachmentState.RESERVED}))
        self.assertEqual("attached", self.state(mine))
        self.reconcile.assert_not_called()

    def test_disconnect_without_agent_calls_manager_only(self):
        mine = self.attachment("attached", agent=None)
        self.disconnect(mine)
        self.detach.assert_called_once_with(self.ctx, mine, None)
        self.reconcile.assert_not_called()

    def test_disconnect_with_unavailable_agent_changes_nothing_and_names_force(self):
        agents.silence(HOST)
        for state in WITH_DEVICE:
            mine = self.attachment(state)
            with self.assertRaisesRegex(exception.AgentUnavailable, f"{mine.id}.force=true"):
                self.disconnect(mine)
            self.assertEqual(state, self.state(mine))
        self.reconcile.assert_not_called()
        self.detach.assert_not_called()

    def test_disconnect_with_device_in_use_keeps_attachment(self):
        mine = self.attachment("attached")

        def keep(_ctx, host, attachment_id):
            agent_transitions.refuse_detach(attachment_id, host, 1, "mounted")
            raise exception.DeviceBusy(device="/dev/sdb", users="/mnt")

        self.reconcile.side_effect = keep
        with self.assertRaisesRegex(exception.DeviceBusy, "/mnt"):
            self.disconnect(mine)
        self.assertEqual("attached", self.state(mine))
        self.detach.assert_not_called()

    def test_disconnect_with_unproved_release_is_refused(self):
        mine = self.attachment("attached")
        self.reconcile.side_effect = None
        with self.assertRaisesRegex(exception.Conflict, "has not released"):
            self.disconnect(mine)
        self.reconcile.side_effect = lambda *_args: agent_transitions.refuse_detach(
            mine.id, HOST, 1, "mounted"
        )
        with self.assertRaisesRegex(exception.Conflict, "has not released .*: mounted"):
            self.disconnect(mine)
        self.detach.assert_not_called()

    def test_disconnect_with_lost_answer_and_released_device_succeeds(self):
        for error in (
            exception.AgentTimeout(host=HOST, attachment_id="a"),
            exception.AgentUnavailable(host=HOST, since="yet"),
            exception.Unavailable(reason="The queue is away."),
            exception.AttachmentNotFound(attachment_id="a"),
            exception.InvalidTransition("It has changed."),
        ):
            mine = self.attachment("attached")

            def silent(*args, raised=error):
                self.release_device(*args)
                raise raised

            self.reconcile.side_effect = silent
            with self.subTest(type(error).__name__):
                self.assertEqual({"attachments": []}, self.disconnect(mine))

    def test_disconnect_with_lost_answer_can_be_repeated(self):
        for error in (
            exception.AgentTimeout(host=HOST, attachment_id="a"),
            exception.AgentUnavailable(host=HOST, since="yet"),
            exception.Unavailable(reason="The queue is away."),
        ):
            mine = self.attachment("attached")
            self.reconcile.side_effect = error
            with self.assertRaises(type(error)):
                self.disconnect(mine)
            self.assertEqual("withdrawing", self.state(mine))
            self.reconcile.side_effect = self.release_device
            self.disconnect(Attachment.get(self.ctx, mine.id))
            self.assertEqual("disconnecting", self.state(mine))

    def test_disconnect_with_concurrent_change_is_retried(self):
        mine = self.attachment("attached")
        changed = exception.InvalidTransition("It has changed.")
        self.reconcile.side_effect = [changed, changed, changed]
        with self.assertRaises(exception.InvalidTransition):
            self.disconnect(mine)

        def reconcile(*_args):
            self.reconcile.side_effect = self.release_device
            raise changed

        self.reconcile.side_effect = reconcile
        self.assertEqual({"attachments": []}, self.disconnect(mine))

    def test_disconnect_deleted_by_other_request_succeeds(self):
        for faster in (
            lambda mine: rows.remove_attachment(mine.id),
            lambda mine: self.release_device(None, HOST, mine.id),
        ):
            mine = self.attachment("attached")
            other = rows.add_attachment(mine.volume_id)["id"]
            self.reconcile.side_effect = lambda *_args, f=faster, m=mine: f(m)
            gone = exception.AttachmentNotFound(attachment_id=mine.id)
            self.detach.side_effect = gone
            found = self.disconnect(mine)["attachments"]
            self.assertIn(other, [each["id"] for each in found])

    def test_disconnect_of_deleted_attachment_is_not_found(self):
        mine = self.attachment("attached")
        rows.remove_attachment(mine.id)
        with self.assertRaises(exception.AttachmentNotFound):
            self.disconnect(mine)


class ReleaseDeviceTest(Case):
    def test_release_device_calls_agent_and_not_manager(self):
        mine = self.attachment("attached")
        agent_detach.release_device(self.ctx, mine, None)
        self.assertEqual("disconnecting", self.state(mine))
        agent_detach.release_device(self.ctx, Attachment.get(self.ctx, mine.id), None)
        self.reconcile.assert_called_once_with(self.ctx, HOST, mine.id)
        self.detach.assert_not_called()

    def test_release_device_of_deleted_attachment_succeeds(self):
        mine = self.attachment("attached")
        self.reconcile.side_effect = lambda *_args: rows.remove_attachment(mine.id)
        agent_detach.release_device(self.ctx, mine, None)


class AsyncTest(Case):
    def setUp(self):
        super().setUp()
        self.async_response = mock.Mock()

    def disconnect(self, attachment, allowed_states=None):
        return agent_detach.disconnect_async(
            self.ctx, attachment, allowed_states, (1, 0), self.async_response
        )

    def test_async_disconnect_notifies_agent_without_waiting(self):
        mine = self.attachment("attached")
        shown = self.disconnect(mine)["attachment"]
        self.assertEqual(("detaching", "/dev/sdb"), (shown["status"], shown["device"]))
        self.request_reconcile.assert_called_once_with(self.ctx, HOST, mine.id)
        self.async_response.accept.assert_called_once_with("attachments", mine.id)
        self.reconcile.assert_not_called()
        self.process_pending.assert_not_called()
        self.assertEqual("withdrawing", self.state(mine))

    def test_async_disconnect_with_unavailable_agent_changes_nothing(self):
        mine = self.attachment("attached")
        agents.silence(HOST)
        with self.assertRaises(exception.AgentUnavailable):
            self.disconnect(mine)
        self.assertEqual("attached", self.state(mine))
        self.async_response.accept.assert_not_called()

    def test_async_disconnect_without_device_notifies_manager(self):
        for mine in (self.attachment("connecting"), self.attachment("attached", agent=None)):
            self.disconnect(mine)
            self.assertEqual("disconnecting", self.state(mine))
        self.assertEqual(2, self.process_pending.call_count)
        self.request_reconcile.assert_not_called()

    def test_async_disconnect_of_attachment_with_new_device_withdraws_it(self):
        mine = self.attachment("connecting")
        rows.change_attachment(mine.id, state="connected")
        self.assertEqual("detaching", self.disconnect(mine)["attachment"]["status"])
        self.assertEqual("withdrawing", self.state(mine))

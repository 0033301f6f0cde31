# SPDX-License-Identifier: Apache-2.0
"""Attachments of one volume that share a device: none removes it from the others."""

import contextlib
from unittest import mock

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.journal import Journal, Step
from attachd.agent.reconciler import Reconciler
from attachd.tests.fixtures import fake_host
from attachd.tests.fixtures.backends import ProcessKilled
from attachd.tests.unit.agent import test_reconciler
from attachd.tests.unit.agent.test_reconciler import OTHER_INFO


class SharedTest(test_reconciler.ReconcilerCase):
    def test_disconnect_keeps_device_of_other_attachment(self):
        first, second = self.attached(), self.attached()
        self.withdraw(first)
        self.reconciler.reconcile(first)
        self.assertEqual((["t1"], []), (self.connector.devices(), self.connector.calls))
        self.withdraw(second)
        self.reconciler.reconcile(second)
        self.assertEqual(([], ["disconnect"]), (self.connector.devices(), self.connector.calls))

    def test_interrupted_connect_keeps_shared_device(self):
        self.attached()
        attachment_id = self.add()
        killed = mock.patch.object(self.connector, "connect", side_effect=ProcessKilled)
        with killed, contextlib.suppress(ProcessKilled):
            self.reconciler.reconcile(attachment_id)
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual((["t1"], []), (self.connector.devices(), self.connector.calls))

    def lose(self, attachment_id):
        """Remove the journal entry of an attachment."""
        entries = {entry.attachment_id: entry for entry in self.entries()}
        self.host.journal.remove(entries[attachment_id])

    def test_untracked_device_is_removed_beside_other_device(self):
        attachment_id, other = self.attached(), self.attached(connection_info=OTHER_INFO)
        self.lose(attachment_id)
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual(
            (["t2"], ["disconnect"]), (self.connector.devices(), self.connector.calls)
        )
        self.assertEqual([other], [entry.attachment_id for entry in self.entries()])

    def test_untracked_device_shared_with_other_is_kept(self):
        attachment_id, other = self.attached(), self.attached()
        self.lose(attachment_id)
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual((["t1"], []), (self.connector.devices(), self.connector.calls))
        self.assertEqual([other], [entry.attachment_id for entry in self.entries()])

    def test_untracked_device_is_not_searched_beside_incomplete_entry(self):
        attachment_id, other = self.attached(), self.attached(connection_info=OTHER_INFO)
        entries = {entry.attachment_id: entry for entry in self.entries()}
        self.host.journal.write(entries[other], step=Step.CONNECTING, device=None)
        self.lose(attachment_id)
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual((["t1", "t2"], []), (self.connector.devices(), self.connector.calls))

    def test_path_reused_after_reboot_is_not_shared(self):
        attachment_id, other = self.attached(), self.attached(connection_info=OTHER_INFO)
        entries = {entry.attachment_id: entry for entry in self.entries()}
        self.connector.path("t2").unlink()
        self.host.journal.write(entries[other], device=entries[attachment_id].device)
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual(([], ["disconnect"]), (self.connector.devices(), self.connector.calls))

    def test_unknown_sharing_is_retried(self):
        first, attachment = self.attached(), self.attached()
        self.withdraw(attachment)
        unknown = exception.HostError(reason="The device is unknown.")
        with (
            mock.patch.object(self.connector, "is_present", side_effect=unknown),
            self.assertRaisesRegex(exception.HostError, "The device is unknown"),
        ):
            self.reconciler.reconcile(attachment)
        self.assertEqual(("withdrawing", "The device is unknown."), self.seen(attachment)[::2])
        self.reconciler.reconcile(attachment)
        self.assertEqual(("attached", ["t1"]), (self.seen(first)[0], self.connector.devices()))


class HangingTest(test_reconciler.ReconcilerCase):
    def test_locked_volume_times_out(self):
        attachment_id = self.add()
        # The volume stays locked meanwhile, and is free afterwards, also on a slow machine.
        hasty = Reconciler(
            self.make_host(), fake_host.CREDENTIALS, Options(), slots=1, lock_timeout=0.1
        )
        refused = self.assertRaisesRegex(exception.Unavailable, self.volume_id)
        with self.host.journal.volume_lock(self.volume_id), refused:
            hasty.reconcile(attachment_id)
        self.assertEqual(("connected", None, None), self.seen(attachment_id))
        self.assertEqual([0.0, 0.1], self.reconcile_waits(hasty, attachment_id))
        self.assertEqual("attached", self.seen(attachment_id)[0])

    def test_volume_with_hanging_process_is_not_waited_for_until_free(self):
        attachment_id = self.add()
        hangs = exception.HostHangs(pid=7, seconds="1")
        with (
            mock.patch.object(self.connector, "connect", side_effect=hangs),
            self.assertRaises(exception.HostHangs),
        ):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual([0.0, 120.0], self.reconcile_waits(self.reconciler, attachment_id))

    def reconcile_waits(self, reconciler, attachment_id):
        """Reconcile twice, and return for how long the lock would have been waited for."""
        real = Journal.volume_lock
        with mock.patch.object(Journal, "volume_lock", autospec=True, side_effect=real) as lock:
            reconciler.reconcile(attachment_id)
            reconciler.reconcile(attachment_id)
        return [call.kwargs["timeout"] for call in lock.call_args_list]

# SPDX-License-Identifier: Apache-2.0
"""Attachments of one volume that may have one device, of which none tears it from the others."""

import contextlib
from unittest import mock

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.journal import Step
from attachd.agent.reconciler import Reconciler
from attachd.tests.fixtures import fake_host
from attachd.tests.fixtures.backends import ProcessKilled
from attachd.tests.unit.agent import test_reconciler
from attachd.tests.unit.agent.test_reconciler import OTHER_INFO


class SharedTest(test_reconciler.ReconcilerCase):
    def test_what_shares_its_device_leaves_it_to_the_other(self):
        first, second = self.attached(), self.attached()
        self.withdraw(first)
        self.reconciler.reconcile(first)
        self.assertEqual((["t1"], []), (self.connector.devices(), self.connector.calls))
        self.withdraw(second)
        self.reconciler.reconcile(second)
        self.assertEqual(([], ["disconnect"]), (self.connector.devices(), self.connector.calls))

    def test_what_was_begun_on_the_device_of_another_leaves_it_alone(self):
        self.attached()
        mine = self.add()
        killed = mock.patch.object(self.connector, "connect", side_effect=ProcessKilled)
        with killed, contextlib.suppress(ProcessKilled):
            self.reconciler.reconcile(mine)
        self.withdraw(mine)
        self.reconciler.reconcile(mine)
        self.assertEqual("disconnecting", self.seen(mine)[0])
        self.assertEqual((["t1"], []), (self.connector.devices(), self.connector.calls))

    def lose(self, attachment_id):
        """Lose what the journal knows of an attachment."""
        entries = {each.attachment_id: each for each in self.entries()}
        self.host.journal.remove(entries[attachment_id])

    def test_a_device_that_nobody_has_noted_goes_although_another_has_one(self):
        mine, other = self.attached(), self.attached(connection_info=OTHER_INFO)
        self.lose(mine)
        self.withdraw(mine)
        self.reconciler.reconcile(mine)
        self.assertEqual("disconnecting", self.seen(mine)[0])
        self.assertEqual(
            (["t2"], ["disconnect"]), (self.connector.devices(), self.connector.calls)
        )
        self.assertEqual([other], [each.attachment_id for each in self.entries()])

    def test_a_device_that_nobody_has_noted_stays_if_another_has_it_too(self):
        mine, other = self.attached(), self.attached()
        self.lose(mine)
        self.withdraw(mine)
        self.reconciler.reconcile(mine)
        self.assertEqual("disconnecting", self.seen(mine)[0])
        self.assertEqual((["t1"], []), (self.connector.devices(), self.connector.calls))
        self.assertEqual([other], [each.attachment_id for each in self.entries()])

    def test_nothing_is_looked_for_beside_what_may_have_a_device_that_nobody_has_noted(self):
        mine, other = self.attached(), self.attached(connection_info=OTHER_INFO)
        entries = {each.attachment_id: each for each in self.entries()}
        self.host.journal.write(entries[other], step=Step.CONNECTING, device=None)
        self.lose(mine)
        self.withdraw(mine)
        self.reconciler.reconcile(mine)
        self.assertEqual("disconnecting", self.seen(mine)[0])
        self.assertEqual((["t1", "t2"], []), (self.connector.devices(), self.connector.calls))

    def test_what_another_had_before_a_reboot_is_nothing_that_is_shared(self):
        mine, other = self.attached(), self.attached(connection_info=OTHER_INFO)
        entries = {each.attachment_id: each for each in self.entries()}
        self.connector.path("t2").unlink()
        self.host.journal.write(entries[other], device=entries[mine].device)
        self.withdraw(mine)
        self.reconciler.reconcile(mine)
        self.assertEqual("disconnecting", self.seen(mine)[0])
        self.assertEqual(([], ["disconnect"]), (self.connector.devices(), self.connector.calls))

    def test_where_nobody_can_tell_what_is_shared_it_is_tried_again(self):
        first, mine = self.attached(), self.attached()
        self.withdraw(mine)
        puzzled = exception.HostError(reason="Nobody can tell.")
        with (
            mock.patch.object(self.connector, "is_present", side_effect=puzzled),
            self.assertRaisesRegex(exception.HostError, "Nobody can tell"),
        ):
            self.reconciler.reconcile(mine)
        self.assertEqual(("withdrawing", "Nobody can tell."), self.seen(mine)[::2])
        self.reconciler.reconcile(mine)
        self.assertEqual(("attached", ["t1"]), (self.seen(first)[0], self.connector.devices()))


class HangingTest(test_reconciler.ReconcilerCase):
    def test_one_volume_that_hangs_keeps_no_thread_for_ever(self):
        mine = self.add()
        # The volume stays held meanwhile, and is free afterwards, however slow all is.
        hasty = Reconciler(
            self.make_host(), fake_host.CREDENTIALS, Options(), slots=1, lock_timeout=0.1
        )
        refused = self.assertRaisesRegex(exception.Unavailable, self.volume_id)
        with self.host.journal.volume_lock(self.volume_id), refused:
            hasty.reconcile(mine)
        self.assertEqual(("connected", None, None), self.seen(mine))
        hasty.reconcile(mine)
        self.assertEqual("attached", self.seen(mine)[0])

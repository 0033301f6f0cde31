# SPDX-License-Identifier: Apache-2.0
"""When volumes are trimmed, and which; functional/test_discard.py frees real blocks."""

import os
import time
from unittest import mock

from attachd import exception
from attachd.agent import trim_timer
from attachd.agent.connectors.base import Device
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.mount.trim import CannotTrim, Range
from attachd.agent.trim_timer import TrimTimer
from attachd.tests.fixtures import fake_host
from attachd.tests.wait import wait_until

HOUR = 3600.0
PARTS = [Range("/mnt", 0, 64), Range("/mnt", 64, None)]


class TrimTimerTest(fake_host.FakeHostCase):
    def setUp(self):
        super().setUp()
        self.trim = self.enterContext(mock.patch.object(trim_timer, "trim"))
        self.trim.list_ranges.return_value = PARTS
        self.trim.trim.return_value = 5
        self.trim.CannotTrim = CannotTrim
        self.enterContext(mock.patch.object(self.host, "is_present", return_value=True))
        self.entry = self.write("v1")
        self.timer = TrimTimer(self.host, HOUR)

    def write(self, volume, **values):
        defaults = {"owner": Owner.AGENT, "step": Step.ATTACHED, "device": Device("/dev/x", {})}
        return self.host.journal.write(Entry(volume, **{**defaults, **values}))

    def trimmed(self):
        return [call.args[0] for call in self.trim.trim.call_args_list]

    def test_each_range_is_trimmed_once_in_an_interval_also_after_a_restart(self):
        with self.assertLogs("attachd.agent.trim_timer", "INFO") as logs:
            self.timer.run_once()
        self.assertIn("Volume v1: trimmed 10 bytes", logs.output[0])
        for timer in (self.timer, TrimTimer(self.host, HOUR)):
            timer.run_once()
        self.assertEqual(PARTS, self.trimmed())
        past = time.time() - HOUR - 1
        os.utime(self.host.journal.state_path / "trimmed", (past, past))
        self.timer.run_once()
        self.assertEqual(PARTS * 2, self.trimmed())

    def test_others_can_lock_a_volume_between_two_ranges(self):
        def check(*_):
            with self.assertRaises(exception.LocalConflict):
                self.lock_elsewhere()
            return 0

        def between():
            for part in PARTS:
                self.lock_elsewhere()
                yield part

        self.trim.trim.side_effect = check
        self.trim.list_ranges.return_value = between()
        self.timer.run_once()
        self.assertEqual(PARTS, self.trimmed())

    def lock_elsewhere(self):
        with self.make_host().journal.volume_lock("v1"):
            pass

    def test_others_are_left_alone(self):
        self.host.journal.remove(self.entry)
        self.write("v2", owner=Owner.LOCAL)
        self.write("v3", step=Step.DISCONNECTING)
        self.timer.run_once()
        self.trim.list_ranges.side_effect = CannotTrim(reason="It is not mounted.")
        self.write("v4")
        TrimTimer(self.host, 0.0).run_once()
        self.trim.trim.assert_not_called()

    def test_failure_of_one_volume_is_logged_and_others_go_on(self):
        self.write("v2")
        failed = exception.HostError(reason="fstrim: no.")
        self.trim.trim.side_effect = [failed, 1, 2]
        with self.assertLogs("attachd.agent.trim_timer", "WARNING") as logs:
            self.timer.run_once()
        self.assertEqual(["Volume v1: not trimmed: fstrim: no."],
                         [record.getMessage() for record in logs.records])  # fmt: skip
        self.assertEqual(3, self.trim.trim.call_count)

    def test_thread_goes_on_after_a_call(self):
        with mock.patch.object(trim_timer, "_CHECK_INTERVAL", 0.0):
            timer = TrimTimer(self.host, 0.0)
            timer.start()
            self.addCleanup(timer.join)
            self.addCleanup(timer.stop)
            wait_until(lambda: len(self.trimmed()) > 2 * len(PARTS))

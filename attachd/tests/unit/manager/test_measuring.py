# SPDX-License-Identifier: Apache-2.0
"""What a manager counts of its own work."""

import contextlib
import unittest

from attachd import exception
from attachd.drivers.base import Export, VolumeRef
from attachd.manager import measuring, rpc_decorators
from attachd.tests import backends, metrics, rows


class Served:
    _host = "h@b"

    @rpc_decorators.answering
    def attach(self, error=None):
        if error is not None:
            raise error
        return "done"


class WatchingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.recorder = metrics.use(self)

    def value(self, name, **labels):
        return metrics.value(self.recorder, name, **labels)

    def test_steps_of_a_driver_are_measured_by_their_outcome(self):
        driver = self.backend.driver
        measuring.measure("h@b", driver)
        volume, export = VolumeRef("v", 1, {}), Export("a", {}, "rw")
        driver.grant(volume, export)
        for final in (True, False):
            with driver.failing("grant", final=final), contextlib.suppress(exception.BackendError):
                driver.grant(volume, export)
        labels = {"backend": "h@b", "step": "grant"}
        for outcome in ("ok", "refused", "failed"):
            found = self.value("attachd_steps_total", outcome=outcome, **labels)
            self.assertEqual(1.0, found, outcome)
        self.assertEqual(3.0, self.value("attachd_step_duration_seconds_count", **labels))

    def test_failures_are_told_before_there_is_one(self):
        # Else the first one was no rise of anything, and no alert.
        measuring.measure("h@b", self.backend.driver)
        for step in ("grant", "revoke"):
            for outcome in ("refused", "failed", "error"):
                labels = {"backend": "h@b", "step": step, "outcome": outcome}
                self.assertEqual(0.0, self.value("attachd_steps_total", **labels), labels)

    def test_all_steps_are_of_the_contract(self):
        for step in measuring.STEPS:
            self.assertTrue(callable(getattr(self.backend.driver, step)), step)

    def test_calls_are_measured_by_their_outcome(self):
        failed = exception.ConnectFailed(attachment_id="a", reason="r")
        refused = exception.Unavailable(reason="r")
        for error in (None, failed, refused, KeyError("x")):
            with contextlib.suppress(Exception):
                Served().attach(error)
        for outcome in ("ok", "failed", "refused", "error"):
            found = self.value(
                "attachd_served_total", server="h@b", method="attach", outcome=outcome
            )
            self.assertEqual(1.0, found, outcome)

    def test_what_nobody_asked_for_is_counted(self):
        for many in (0, 2, 1):
            measuring.acted(self.backend, "expire", many)
        found = self.value(
            "attachd_recovery_actions_total", backend=backends.HOST, action="expire"
        )
        self.assertEqual(3.0, found)

    def test_waiting_for_a_turn_is_a_step(self):
        volume_id = rows.add_volume()["id"]
        with self.backend.lock(volume_id):
            pass
        labels = {"backend": backends.HOST, "step": "wait"}
        self.assertEqual(1.0, self.value("attachd_steps_total", outcome="ok", **labels))

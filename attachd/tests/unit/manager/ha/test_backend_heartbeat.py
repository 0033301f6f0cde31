# SPDX-License-Identifier: Apache-2.0
"""The rounds of a backend's upkeep: what it sets up, what it reports."""

import json
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.db.cluster import services
from attachd.drivers.base import BackendStats
from attachd.manager.ha.backend_heartbeat import BINARY, BackendHeartbeat
from attachd.tests import backends, rows
from attachd.tests.wait import TIMEOUT


class UpkeepTest(unittest.TestCase):
    """One round after the other."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.upkeep = BackendHeartbeat(self.backend)

    def _reported(self):
        (row,) = services.page(services.Filters(binary=BINARY))
        return row

    def test_a_ready_backend_is_reported_up_with_what_it_can_do(self):
        self.upkeep.run_once()
        row = self._reported()
        self.assertEqual((backends.HOST, True, None), (row["host"], row["up"], row["error"]))
        self.assertEqual("nova", row["availability_zone"])
        self.assertEqual("fake", row["report"]["protocol"])
        self.assertIs(True, row["report"]["capabilities"]["multiattach"])
        self.assertEqual("attachd", row["report"]["capabilities"]["vendor_name"])

    def test_a_backend_that_is_ready_corrects_what_its_volumes_say_of_their_connections(self):
        old = rows.add_volume(shared_targets=None)["id"]
        self.upkeep.run_once()
        self.assertIs(False, rows.volume(old)["shared_targets"])
        rows.change_volume(old, shared_targets=None)
        self.upkeep.run_once()
        self.assertIsNone(rows.volume(old)["shared_targets"], "once is enough")
        self.backend.error = "gone for a while"
        with mock.patch.object(type(self.driver), "SHARED_TARGETS", True):
            self.upkeep.run_once()
        self.assertIs(True, rows.volume(old)["shared_targets"])

    def test_whose_backend_it_is_can_be_told_by_class_or_by_report(self):
        with mock.patch.object(type(self.driver), "VENDOR", "Example"):
            self.upkeep.run_once()
            self.assertEqual("Example", self._reported()["report"]["capabilities"]["vendor_name"])
            own = BackendStats("fake", 1.0, 1.0, 0.0, {"vendor_name": "Other"})
            with mock.patch.object(self.driver, "get_stats", return_value=own):
                self.upkeep.run_once()
        self.assertEqual("Other", self._reported()["report"]["capabilities"]["vendor_name"])
        self.assertTrue(self.upkeep.reported.is_set())

    def test_room_without_end_is_reported_as_json_can_say_it(self):
        endless = BackendStats("fake", float("inf"), float("-inf"), 1.5)
        with mock.patch.object(self.driver, "get_stats", return_value=endless):
            self.upkeep.run_once()
        report = self._reported()["report"]
        room = [report[name] for name in ("total_gib", "free_gib", "allocated_gib")]
        self.assertEqual([None, None, 1.5], room)
        json.dumps(report, allow_nan=False)

    def test_a_broken_backend_is_reported_down_with_the_reason_and_set_up_again(self):
        self.backend.error = "not yet"
        with mock.patch.object(self.driver, "setup", side_effect=OSError("no such folder")):
            self.upkeep.run_once()
        row = self._reported()
        self.assertFalse(row["up"])
        # Users read it: what no driver has worded for them may hold a secret.
        self.assertIn("OSError", row["error"])
        self.assertNotIn("folder", row["error"])
        with self.assertRaises(exception.Unavailable):
            self.backend.check_ready()
        self.upkeep.run_once()
        self.assertTrue(self._reported()["up"])
        self.backend.check_ready()

    def test_a_backend_that_cannot_report_is_down_until_it_can(self):
        for method in ("get_stats", "boot_id"):
            with self.driver.failing(method):
                self.upkeep.run_once()
            self.assertIn("burns", self._reported()["error"])
            with self.assertRaises(exception.Unavailable):
                self.backend.check_ready()
            self.upkeep.run_once()
            self.assertTrue(self._reported()["up"])

    def test_old_messages_to_users_are_reaped_now_and_then(self):
        reap = self.enterContext(mock.patch("attachd.db.messages.purge", return_value=1))
        self.upkeep.run_once()
        self.upkeep.run_once()
        self.assertEqual(1, reap.call_count)
        backends.override(self, "purge_interval", 0, group="manager")
        self.upkeep.run_once()
        self.assertEqual(2, reap.call_count)


class RunTest(unittest.TestCase):
    """Round after round, in a thread of its own."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.upkeep = BackendHeartbeat(self.backend)

    def test_it_ends_when_it_is_told_to(self):
        stop = threading.Event()
        thread = threading.Thread(target=self.upkeep.run, args=(stop,), daemon=True)
        thread.start()
        self.assertTrue(self.upkeep.reported.wait(TIMEOUT))
        stop.set()
        thread.join(TIMEOUT)
        self.assertFalse(thread.is_alive())

    def test_a_failing_round_does_not_end_it(self):
        rounds = mock.Mock(side_effect=[False, False, False, True])
        gone = exception.Unavailable(reason="The database does not answer.")
        outcomes = [None, gone, None, None]
        with mock.patch.object(services, "report", side_effect=outcomes) as report:
            self.upkeep.run(mock.Mock(wait=rounds))
        self.assertEqual(4, report.call_count)

    def test_a_traceback_is_logged_only_where_nobody_foresaw_it(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        for error, traced in ((gone, False), (RuntimeError("odd"), True)):
            with (
                self.subTest(error=error),
                mock.patch.object(services, "report", side_effect=error),
                self.assertLogs("attachd.manager.ha.backend_heartbeat", "ERROR") as logged,
            ):
                self.upkeep.run(mock.Mock(wait=mock.Mock(return_value=True)))
                (record,) = logged.records
                self.assertEqual(traced, bool(record.exc_info))
                self.assertIn(f"{error}", record.getMessage())

# SPDX-License-Identifier: Apache-2.0
"""The rounds of a backend's upkeep: what it recovers, what it heals, what it reports."""

import datetime
import json
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.db import attachments as attachments_db
from attachd.db import models, services
from attachd.drivers.base import Report
from attachd.manager import attachments, recovery
from attachd.manager.upkeep import BINARY, Upkeep
from attachd.tests import backends, rows
from attachd.tests.rows import CONNECTOR


class UpkeepTest(unittest.TestCase):
    """One round after the other."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.upkeep = Upkeep(self.backend)

    def _reported(self):
        (row,) = services.page(services.Filters(binary=BINARY))
        return row

    def _attached(self):
        volume_id = rows.add_volume()["id"]
        mine = rows.add_attachment(volume_id)["id"]
        attachments.attach(self.backend, mine, volume_id, CONNECTOR)
        return mine

    def test_a_ready_backend_is_reported_up_with_what_it_can_do(self):
        self.upkeep.once()
        row = self._reported()
        self.assertEqual((backends.HOST, True, None), (row["host"], row["up"], row["error"]))
        self.assertEqual("nova", row["availability_zone"])
        self.assertEqual("fake", row["report"]["protocol"])
        self.assertIs(True, row["report"]["capabilities"]["multiattach"])
        self.assertEqual("attachd", row["report"]["capabilities"]["vendor_name"])

    def test_a_backend_that_is_ready_corrects_what_its_volumes_say_of_their_connections(self):
        old = rows.add_volume(shared_targets=None)["id"]
        self.upkeep.once()
        self.assertIs(False, rows.volume(old)["shared_targets"])
        rows.change_volume(old, shared_targets=None)
        self.upkeep.once()
        self.assertIsNone(rows.volume(old)["shared_targets"], "once is enough")
        self.backend.error = "gone for a while"
        with mock.patch.object(type(self.driver), "SHARED_TARGETS", True):
            self.upkeep.once()
        self.assertIs(True, rows.volume(old)["shared_targets"])

    def test_whose_backend_it_is_can_be_told_by_class_or_by_report(self):
        with mock.patch.object(type(self.driver), "VENDOR", "Example"):
            self.upkeep.once()
            self.assertEqual("Example", self._reported()["report"]["capabilities"]["vendor_name"])
            own = Report("fake", 1.0, 1.0, 0.0, {"vendor_name": "Other"})
            with mock.patch.object(self.driver, "report", return_value=own):
                self.upkeep.once()
        self.assertEqual("Other", self._reported()["report"]["capabilities"]["vendor_name"])
        self.assertTrue(self.upkeep.reported.is_set())

    def test_room_without_end_is_reported_as_json_can_say_it(self):
        endless = Report("fake", float("inf"), float("-inf"), 1.5)
        with mock.patch.object(self.driver, "report", return_value=endless):
            self.upkeep.once()
        report = self._reported()["report"]
        room = [report[name] for name in ("total_gib", "free_gib", "allocated_gib")]
        self.assertEqual([None, None, 1.5], room)
        json.dumps(report, allow_nan=False)

    def test_a_broken_backend_is_reported_down_with_the_reason_and_set_up_again(self):
        self.backend.error = "not yet"
        with mock.patch.object(self.driver, "setup", side_effect=OSError("no such folder")):
            self.upkeep.once()
        row = self._reported()
        self.assertFalse(row["up"])
        # Users read it: what no driver has worded for them may hold a secret.
        self.assertIn("OSError", row["error"])
        self.assertNotIn("folder", row["error"])
        with self.assertRaises(exception.Unavailable):
            self.backend.check_ready()
        self.upkeep.once()
        self.assertTrue(self._reported()["up"])
        self.backend.check_ready()

    def test_a_backend_that_cannot_report_is_down_until_it_can(self):
        for method in ("report", "epoch"):
            with self.driver.failing(method):
                self.upkeep.once()
            self.assertIn("burns", self._reported()["error"])
            with self.assertRaises(exception.Unavailable):
                self.backend.check_ready()
            self.upkeep.once()
            self.assertTrue(self._reported()["up"])

    def test_what_a_dead_manager_left_is_recovered_before_the_first_report(self):
        mine = rows.add_attachment(rows.add_volume()["id"], "connecting")["id"]
        with mock.patch.object(services, "report") as report:
            report.side_effect = lambda **_: self.assertEqual(
                "connected", rows.attachment(mine)["state"]
            )
            self.upkeep.once()
        self.assertEqual(1, report.call_count)

    def test_rows_are_recovered_once_and_again_after_the_backend_was_down(self):
        with mock.patch.object(recovery, "resume", return_value=0) as resume:
            self.upkeep.once()
            self.upkeep.once()
            self.assertEqual(1, resume.call_count)
            self.backend.error = "down"
            self.upkeep.once()
            self.assertEqual(2, resume.call_count)

    def test_what_could_not_be_recovered_is_tried_again(self):
        with mock.patch.object(recovery, "resume", side_effect=[2, 1, 0]) as resume:
            for _ in range(5):
                self.upkeep.once()
        self.assertEqual(3, resume.call_count)

    def test_what_was_forgotten_later_is_picked_up(self):
        self.upkeep.once()
        long_ago = models.now() - datetime.timedelta(days=1)
        mine = rows.add_volume("creating", owner=backends.HOST, created_at=long_ago)
        self.upkeep.once()
        self.assertEqual("available", rows.volume(mine["id"])["status"])

    def test_old_messages_to_users_are_reaped_now_and_then(self):
        reap = self.enterContext(mock.patch("attachd.db.messages.reap", return_value=1))
        self.upkeep.once()
        self.upkeep.once()
        self.assertEqual(1, reap.call_count)
        backends.override(self, "message_reap_interval", 0, group="manager")
        self.upkeep.once()
        self.assertEqual(2, reap.call_count)

    def test_a_restarted_backend_is_healed(self):
        self.upkeep.once()
        mine = self._attached()
        self.driver.restart()
        self.upkeep.once()
        self.assertEqual({mine}, self.driver.granted())

    def test_a_backend_that_was_not_restarted_is_left_alone(self):
        self._attached()
        self.upkeep.once()
        granted = self.driver.methods.count("grant")
        self.upkeep.once()
        self.assertEqual(granted, self.driver.methods.count("grant"))

    def test_an_attachment_that_could_not_be_healed_is_tried_again_alone(self):
        self.upkeep.once()
        mine, other = self._attached(), self._attached()

        def script(call):
            if call.attachment == mine and call.method == "grant":
                raise exception.BackendError("still booting")

        self.driver.restart()
        self.driver.script = script
        self.upkeep.once()
        self.assertEqual({other}, self.driver.granted())
        self.assertTrue(self._reported()["up"], "one attachment does not take a backend down")
        self.driver.script = None
        self.driver.handed.clear()
        self.upkeep.once()
        self.assertEqual([mine], [each.export.attachment_id for each in self.driver.handed])
        self.assertEqual({mine, other}, self.driver.granted())

    def test_a_restart_is_not_forgotten_when_the_database_does_not_answer(self):
        self.upkeep.once()
        mine = self._attached()
        self.driver.restart()
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(attachments_db, "live_of_backend", side_effect=gone):
            self.upkeep.once()
        self.upkeep.once()
        self.assertEqual({mine}, self.driver.granted())


class RunTest(unittest.TestCase):
    """Round after round, in a thread of its own."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.upkeep = Upkeep(self.backend)

    def test_it_ends_when_it_is_told_to(self):
        stop = threading.Event()
        thread = threading.Thread(target=self.upkeep.run, args=(stop,), daemon=True)
        thread.start()
        self.assertTrue(self.upkeep.reported.wait(60))
        stop.set()
        thread.join(10)
        self.assertFalse(thread.is_alive())

    def test_a_failing_round_does_not_end_it_and_rows_are_looked_at_again(self):
        rounds = mock.Mock(side_effect=[False, False, False, True])
        stop = mock.Mock(wait=rounds)
        gone = exception.Unavailable(reason="The database does not answer.")
        outcomes = [None, gone, None, None]
        with (
            mock.patch.object(services, "report", side_effect=outcomes) as report,
            mock.patch.object(recovery, "resume", return_value=0) as resume,
        ):
            self.upkeep.run(stop)
        self.assertEqual((4, 2), (report.call_count, resume.call_count))

    def test_a_traceback_is_logged_only_where_nobody_foresaw_it(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        for error, traced in ((gone, False), (RuntimeError("odd"), True)):
            with (
                self.subTest(error=error),
                mock.patch.object(services, "report", side_effect=error),
                self.assertLogs("attachd.manager.upkeep", "ERROR") as logged,
            ):
                self.upkeep.run(mock.Mock(wait=mock.Mock(return_value=True)))
                (record,) = logged.records
                self.assertEqual(traced, bool(record.exc_info))
                self.assertIn(f"{error}", record.getMessage())

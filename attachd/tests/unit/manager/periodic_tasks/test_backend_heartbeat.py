# SPDX-License-Identifier: Apache-2.0
"""The heartbeat of a backend: setup and reports."""

import json
from unittest import mock

from attachd import exception
from attachd.db.cluster import services
from attachd.db.volumes import volume_queries
from attachd.drivers.base import BackendStats, PoolStats
from attachd.lost_agents import Action, Rule
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.tests.fixtures import backends, db_rows
from attachd.tests.wait import TIMEOUT


class BackendHeartbeatTest(backends.BackendCase):
    """Consecutive runs."""

    def setUp(self):
        super().setUp()
        self.heartbeat = BackendHeartbeat(self.backend)

    def _reported(self):
        (row,) = services.page(services.Filters(binary=services.BINARY))
        return row

    def test_run_once_reports_ready_backend_up_with_stats(self):
        self.heartbeat.run_once()
        row = self._reported()
        self.assertEqual((backends.HOST, True, None), (row["host"], row["up"], row["error"]))
        self.assertEqual("nova", row["availability_zone"])
        self.assertEqual("fake", row["report"]["protocol"])
        self.assertIs(True, row["report"]["capabilities"]["multiattach"])
        self.assertEqual("attachd", row["report"]["capabilities"]["vendor_name"])

    def test_run_once_reports_abilities_and_promises_as_capabilities(self):
        self.heartbeat.run_once()
        offered = self._reported()["report"]["capabilities"]
        expected = {"clone": True, "manage_existing": True, "read_only_enforced": True}
        self.assertEqual(expected, {name: offered[name] for name in expected})
        self.backend.driver = backends.without_abilities(self.driver)
        self.heartbeat.run_once()
        offered = self._reported()["report"]["capabilities"]
        expected = {"clone": False, "manage_existing": False, "read_only_enforced": False}
        self.assertEqual(expected, {name: offered[name] for name in expected})

    def test_run_once_reports_what_is_done_about_lost_agents(self):
        self.backend.lost_agent_rule = Rule(Action.MARK, 30)
        self.heartbeat.run_once()
        report = self._reported()["report"]
        self.assertEqual(("mark", 30), (report["on_lost_agent"], report["lost_agent_timeout"]))

    def test_run_once_corrects_shared_targets_of_volumes(self):
        old = db_rows.add_volume(shared_targets=None)["id"]
        self.heartbeat.run_once()
        self.assertIs(False, db_rows.get_volume(old)["shared_targets"])
        db_rows.change_volume(old, shared_targets=None)
        self.heartbeat.run_once()
        self.assertIsNone(db_rows.get_volume(old)["shared_targets"], "once is enough")
        self.backend.error = "gone for a while"
        with mock.patch.object(type(self.driver), "SHARED_TARGETS", True):
            self.heartbeat.run_once()
        self.assertIs(True, db_rows.get_volume(old)["shared_targets"])

    def test_run_once_reports_vendor_of_class_or_stats(self):
        with mock.patch.object(type(self.driver), "VENDOR", "Example"):
            self.heartbeat.run_once()
            self.assertEqual("Example", self._reported()["report"]["capabilities"]["vendor_name"])
            own = BackendStats("fake", 1.0, 1.0, 0.0, {"vendor_name": "Other"})
            with mock.patch.object(self.driver, "get_stats", return_value=own):
                self.heartbeat.run_once()
        self.assertEqual("Other", self._reported()["report"]["capabilities"]["vendor_name"])
        self.assertTrue(self.heartbeat.reported.is_set())

    def test_run_once_reports_infinite_capacity_as_null(self):
        endless = BackendStats("fake", float("inf"), float("-inf"), 1.5)
        with mock.patch.object(self.driver, "get_stats", return_value=endless):
            self.heartbeat.run_once()
        report = self._reported()["report"]
        free = [report[name] for name in ("total_gib", "free_gib", "allocated_gib")]
        self.assertEqual([None, None, 1.5], free)
        json.dumps(report, allow_nan=False)

    def test_run_once_reports_pools_and_their_sums(self):
        pools = [PoolStats("a", float("inf"), 2.0, 1.0), PoolStats("b", 5.0, 4.0, 1.0, {"x": 1})]
        stats = BackendStats.from_pools("fake", pools, {"multiattach": True})
        with mock.patch.object(self.driver, "get_stats", return_value=stats):
            self.heartbeat.run_once()
        report = self._reported()["report"]
        self.assertEqual(
            [("a", None, 2.0, {}), ("b", 5.0, 4.0, {"x": 1})],
            [
                (pool["name"], pool["total_gib"], pool["free_gib"], pool["capabilities"])
                for pool in report["pools"]
            ],
        )
        self.assertEqual(
            (None, 6.0, 2.0), (report["total_gib"], report["free_gib"], report["allocated_gib"])
        )

    def test_run_once_reports_no_sizes_that_hosts_write(self):
        for pool, size in (("a", 3), ("b", 4), ("former", 5)):
            db_rows.add_volume(host=f"{backends.HOST}#{pool}", size_gib=size)
        db_rows.add_volume("creating", host=f"{backends.HOST}#a", size_gib=100)
        db_rows.add_volume(host=f"{backends.HOST}2#a", size_gib=100)
        pools = [PoolStats(name, 50.0, 40.0, 2.0**33) for name in ("a", "b", "c")]
        stats = BackendStats.from_pools("fake", pools, {})
        with (
            mock.patch.object(self.driver, "get_stats", return_value=stats),
            mock.patch.object(type(self.driver), "HOSTS_WRITE_SIZES", True),
        ):
            with mock.patch.object(
                volume_queries, "allocated", side_effect=volume_queries.allocated
            ) as read:
                for _ in range(3):
                    self.heartbeat.run_once()
            read.assert_called_once_with(backends.HOST)
        report = self._reported()["report"]
        self.assertEqual([3.0, 4.0, 0.0], [pool["allocated_gib"] for pool in report["pools"]])
        self.assertEqual((150.0, 12.0), (report["total_gib"], report["allocated_gib"]))

    def test_run_once_reports_broken_backend_down_and_sets_it_up_again(self):
        self.backend.error = "not yet"
        with mock.patch.object(self.driver, "setup", side_effect=OSError("no such folder")):
            self.heartbeat.run_once()
        row = self._reported()
        self.assertFalse(row["up"])
        # Users read it: the text of an unforeseen error may contain a secret.
        self.assertIn("OSError", row["error"])
        self.assertNotIn("folder", row["error"])
        with self.assertRaises(exception.Unavailable):
            self.backend.check_ready()
        self.heartbeat.run_once()
        self.assertTrue(self._reported()["up"])
        self.backend.check_ready()

    def test_run_once_takes_backend_without_stats_down_until_it_answers(self):
        for method in ("get_stats", "boot_id"):
            with self.driver.failing(method):
                self.heartbeat.run_once()
            self.assertIn("backend failed", self._reported()["error"])
            with self.assertRaises(exception.Unavailable):
                self.backend.check_ready()
            self.heartbeat.run_once()
            self.assertTrue(self._reported()["up"])


class RunTest(backends.BackendCase):
    """Runs in a thread."""

    def setUp(self):
        super().setUp()
        self.heartbeat = BackendHeartbeat(self.backend)

    def test_run_ends_at_stop(self):
        self.heartbeat.start()
        self.assertTrue(self.heartbeat.reported.wait(TIMEOUT))
        self.heartbeat.stop()
        self.heartbeat.join(TIMEOUT)
        self.assertFalse(self.heartbeat.is_alive())

    def test_run_continues_after_failure(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        outcomes = [None, gone, None, None]
        with (
            mock.patch.object(services, "report", side_effect=outcomes) as report,
            mock.patch.object(self.heartbeat, "_stop_requested") as stop,
            mock.patch.object(self.heartbeat, "_wake") as wake,
        ):
            stop.is_set.side_effect = [False, False, False, False, True]
            self.heartbeat.run()
        self.assertEqual(4, report.call_count)
        self.assertEqual([mock.call(10.0)] * 4, wake.wait.mock_calls)

    def test_run_logs_traceback_only_of_unforeseen_error(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        for error, traced in ((gone, False), (RuntimeError("odd"), True)):
            with (
                self.subTest(error=error),
                mock.patch.object(services, "report", side_effect=error),
                self.assertLogs("attachd.manager.periodic_tasks.periodic_task", "ERROR") as logged,
            ):
                heartbeat = BackendHeartbeat(self.backend)
                with mock.patch.object(heartbeat, "on_failure", heartbeat.stop):
                    heartbeat.run()
                (record,) = logged.records
                self.assertEqual(traced, bool(record.exc_info))
                self.assertIn(f"{error}", record.getMessage())

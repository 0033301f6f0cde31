# SPDX-License-Identifier: Apache-2.0
"""Counts of rows by state."""

import datetime
import math
import unittest
from unittest import mock

import sqlalchemy as sa

from attachd.db import models, row_counts
from attachd.db.cluster import members
from attachd.db.engine import session
from attachd.telemetry import metrics
from attachd.tests.fixtures import backends, databases, db_rows


class CountTest(backends.BackendCase):
    def test_count_of_empty_database_is_zero(self):
        found = row_counts.count(60, 0)
        self.assertEqual(({}, {}, []), (found.attachments, found.volumes, found.backends))
        self.assertEqual(({"up": 0, "down": 0, "conflict": 0}, 0), (found.agents, found.processes))
        self.assertEqual({0}, set(found.overdue.values()))

    def test_count_groups_rows_by_state(self):
        volume_id = db_rows.add_volume()["id"]
        db_rows.add_volume("creating")
        long_ago = models.now() - datetime.timedelta(hours=1)
        for state, moment in (("attached", None), ("connecting", long_ago), ("connecting", None)):
            made = db_rows.add_attachment(volume_id, state)
            db_rows.change_attachment(made["id"], updated_at=moment or models.now())
        found = row_counts.count(60, 0)
        expected = {("attachment", "attached"): 1, ("attachment", "connecting"): 2}
        self.assertEqual(expected, found.attachments)
        # An attached volume with more on their way may have one of two names.
        renamed = {"attaching" if key == "in-use" else key: n for key, n in found.volumes.items()}
        self.assertEqual({"attaching": 1, "creating": 1}, renamed)
        late = {key: many for key, many in found.overdue.items() if many}
        self.assertEqual({("attachment", "connecting"): 1}, late)

    def test_count_groups_attached_attachments_by_condition(self):
        volume_id = db_rows.add_volume()["id"]
        for state, condition in (
            *(("attached", "ok"), ("attached", "ok"), ("attached", "failed"), ("attached", None)),
            ("withdrawing", "failed"),
        ):
            db_rows.add_attachment(volume_id, state, condition_state=condition)
        db_rows.add_attachment(volume_id, "attached", kind="connection", condition_state="ok")
        found = row_counts.count(60, 0)
        expected = {"ok": 2, "degraded": 0, "failed": 1, "unknown": 1}
        self.assertEqual(expected, found.conditions)
        self.assertEqual(4, found.attachments["attachment", "attached"])

    def test_count_includes_backends_agents_and_members(self):
        for host, up in (("a@x", True), ("b@x", False)):
            db_rows.report_service(host, binary="m", up=up)
        db_rows.change_service("a@x", seen_at=models.now() - datetime.timedelta(days=1))
        db_rows.report_service("c@x", binary="m")
        members.join("0" * 32, "here:1")
        found = row_counts.count(60, 0)
        up = {backend.backend: backend.up for backend in found.backends}
        self.assertEqual({"a@x": False, "b@x": False, "c@x": True}, up)
        ages = {backend.backend: backend.age for backend in found.backends}
        self.assertGreater(ages["a@x"], 86000)
        self.assertLess(ages["c@x"], 3600)
        self.assertEqual(1, found.processes)

    def test_count_includes_pools_of_reports(self):
        plain = {"total_gib": 9.5, "free_gib": 2.5, "allocated_gib": 20.0, "capabilities": {}}
        unlimited = {"total_gib": None, "free_gib": None, "allocated_gib": 3.0}
        pools = [{**plain, "name": "fast"}, {**unlimited, "capabilities": {}, "name": "slow"}]
        for host, report in (
            ("a@plain", {**plain, "pools": []}),
            ("a@named", {**unlimited, "capabilities": {"pool_name": "own"}}),
            ("a@pools", {**plain, "pools": pools}),
            ("a@down", None),
        ):
            db_rows.report_service(host, binary="m", report=report)
        self.assertEqual(
            {
                ("a@plain", "plain", 9.5, 2.5, 20.0),
                ("a@named", "own", math.inf, math.inf, 3.0),
                ("a@pools", "fast", 9.5, 2.5, 20.0),
                ("a@pools", "slow", math.inf, math.inf, 3.0),
            },
            {tuple(pool) for pool in row_counts.count(60, 0).pools},
        )

    def test_count_is_not_repeated_while_it_is_fresh(self):
        before = session.counters()
        row_counts.count(60, 1000)
        after = session.counters()
        # the former count, which is none, five counts, their result, backends and processes
        self.assertEqual(9, after.statements - before.statements)
        db_rows.add_volume()
        members.join("0" * 32, "here:1")
        stored = session.counters()
        found = row_counts.count(60, 1000)
        self.assertEqual(3, session.counters().statements - stored.statements)
        self.assertEqual(({}, 1), (found.volumes, found.processes))
        self.assertGreaterEqual(found.age, 0.0)
        self.assertEqual({"available": 1}, row_counts.count(60, 0).volumes)

    def test_count_is_made_by_one_of_many_processes(self):
        row_counts.count(60, 0)
        db_rows.add_volume()
        seen = []
        real = row_counts._count

        def count_while_another_asks(*args):
            seen.append(row_counts.count(60, 0).volumes)
            return real(*args)

        with mock.patch.object(row_counts, "_count", count_while_another_asks):
            self.assertEqual({"available": 1}, row_counts.count(60, 0).volumes)
        self.assertEqual([{}], seen, "the other one has the former numbers")

    def test_count_of_dead_process_or_of_future_is_repeated(self):
        row_counts.count(60, 0)
        db_rows.add_volume()
        day = datetime.timedelta(days=1)
        for values in (
            {"claimed_at": models.now() - day},
            {"claimed_at": models.now() + day},
            {"counted_at": models.now() + day},
        ):
            with session.writer() as connection:
                connection.execute(
                    sa.update(models.row_counts).values(
                        counted_at=models.now() - day, claimed_at=None
                    )
                )
                connection.execute(sa.update(models.row_counts).values(values))
            found = row_counts.count(60, 1000)
            self.assertEqual(({"available": 1}, True), (found.volumes, found.age < 1000), values)

    def test_statement_totals_are_those_of_process(self):
        row_counts.count(60, 0)
        after = session.counters()
        result = row_counts.statement_totals()
        self.assertEqual(after.statements, result[metrics.STATEMENTS])


class DialectTest(unittest.TestCase):
    def test_count_compiles_for_each_database(self):
        for kind in ("mariadb", "postgresql"):
            databases.use(self, kind)
            db_rows.add_attachment(db_rows.add_volume()["id"], "connecting")
            found = dict(row_counts.count(60, 0).attachments)
            self.assertEqual({("attachment", "connecting"): 1}, found, kind)

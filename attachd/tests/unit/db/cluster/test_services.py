# SPDX-License-Identifier: Apache-2.0
"""Reports of services, and what follows from them."""

import datetime
import functools
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.cluster import services
from attachd.db.engine import session
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows


def report(host="h@b", **values):
    given = {"availability_zone": "nova", "up": True, "error": None, "report": {"free_gib": 5}}
    services.report(binary="attachd-manager", host=host, **{**given, **values})


class ServicesTest(databases.DatabaseCase):
    def _row(self, host="h@b"):
        (row,) = services.page({"host": host})
        return row

    def test_first_report_registers_service(self):
        report()
        row = self._row()
        self.assertEqual(("attachd-manager", "nova"), (row["binary"], row["availability_zone"]))
        self.assertEqual({"free_gib": 5}, row["report"])
        self.assertEqual((True, True, False), (row["up"], row["alive"], row["disabled"]))

    def test_report_replaces_previous_in_one_statement(self):
        report()
        before = session.counters()
        report(report={"free_gib": 4}, availability_zone="z")
        statements, transactions = session.counters()
        self.assertEqual((1, 1), (statements - before[0], transactions - before[1]))
        row = self._row()
        self.assertEqual(({"free_gib": 4}, "z"), (row["report"], row["availability_zone"]))

    def test_report_of_down_backend_keeps_capabilities(self):
        report()
        report(up=False, error="x" * 5000, report=None)
        row = self._row()
        self.assertEqual(({"free_gib": 5}, False), (row["report"], row["up"]))
        self.assertEqual("x" * 1023, row["error"])

    def test_report_stores_versions(self):
        report(supported=services.Versions("1.9", "Volume 1.3"))
        self.assertEqual({"h@b": ("1.9", "Volume 1.3", True)}, services.versions())
        before = session.counters()
        report(supported=services.Versions("1.9", "Volume 1.3"))
        self.assertEqual(1, session.counters()[0] - before[0])

    def test_report_of_two_releases_keeps_older_while_alive(self):
        old, new = services.Versions("1.9", "Volume 1.3"), services.Versions("1.10", "Volume 1.4")
        for item in (new, old, new, old, new):
            report(supported=item, report={"free_gib": int(item.contract[2:])})
        self.assertEqual(old, services.versions()["h@b"])
        self.assertEqual({"free_gib": 10}, self._row()["report"])
        later = models.now() + datetime.timedelta(seconds=CONF.manager.service_down_time + 1)
        with mock.patch.object(models, "now", return_value=later):
            report(supported=new)
            self.assertEqual(new, services.versions()["h@b"])

    def test_report_without_versions_is_followed_by_one_with(self):
        report()
        self.assertEqual({"h@b": (None, None, True)}, services.versions())
        report(supported=services.Versions("1.9", "Volume 1.3"))
        self.assertEqual("1.9", services.versions()["h@b"].contract)
        report(report={"free_gib": 1})
        self.assertEqual("1.9", services.versions()["h@b"].contract)
        self.assertEqual({"free_gib": 1}, self._row()["report"])

    def test_first_reports_concurrently_register_one_service(self):
        report(report={"free_gib": 1})
        real = services._update
        with mock.patch.object(services, "_update") as update:
            # The other's row was not there yet when we looked, but is when we insert ours.
            update.side_effect = lambda *args: update.call_count > 1 and real(*args)
            report(report={"free_gib": 2})
        self.assertEqual(1, len(services.page({})))
        self.assertEqual({"free_gib": 2}, self._row()["report"])

    def test_service_without_recent_report_is_not_alive(self):
        report()
        later = models.now() + datetime.timedelta(seconds=CONF.manager.service_down_time + 1)
        with mock.patch.object(models, "now", return_value=later):
            self.assertFalse(self._row()["alive"])

    def test_page_filters_and_sorts(self):
        for host in ("h@b", "h@a"):
            report(host)
        self.assertEqual(["h@a", "h@b"], [row["host"] for row in services.page({})])
        self.assertEqual(2, len(services.page({"binary": "attachd-manager"})))
        self.assertEqual([], services.page({"binary": "x", "host": "h@a"}))

    def test_disable_lasts_until_enable(self):
        report()
        row = services.disable("attachd-manager", "h@b", "maintenance")
        self.assertEqual((True, "maintenance"), (row["disabled"], row["disabled_reason"]))
        report()
        self.assertTrue(self._row()["disabled"])
        row = services.enable("attachd-manager", "h@b")
        self.assertEqual((False, None), (row["disabled"], row["disabled_reason"]))

    def test_enable_of_unknown_service_raises_not_found(self):
        with self.assertRaisesRegex(exception.NotFound, "h@x"):
            services.enable("attachd-manager", "h@x")
        self.assertRaises(exception.NotFound, services.disable, "x", "h@b", None)

    def test_freeze_and_thaw_succeed_once_each(self):
        report()
        report("h@a")
        for turn, expected in ((services.freeze, True), (services.thaw, False)):
            turn("attachd-manager", "h@b")
            self.assertEqual(expected, self._row()["frozen"])
            self.assertEqual(expected, services.is_frozen("attachd-manager", "h@b"))
            with self.assertRaisesRegex(exception.BadRequest, "h@b is (frozen already|not fr)"):
                turn("attachd-manager", "h@b")
            self.assertFalse(services.is_frozen("attachd-manager", "h@a"))

    def test_freeze_concurrently_succeeds_once(self):
        report()
        freeze = functools.partial(services.freeze, "attachd-manager", "h@b")
        outcomes = concurrency.run_at_once(freeze, freeze)
        self.assertEqual(1, outcomes.count(None))

    def test_is_frozen_of_unknown_backend_is_false(self):
        for turn in (services.freeze, services.thaw):
            with self.assertRaisesRegex(exception.NotFound, "h@x"):
                turn("attachd-manager", "h@x")
        self.assertFalse(services.is_frozen("attachd-manager", "h@x"))

    def test_usage_by_project_counts_volumes_of_backend(self):
        for project, size, host in (
            ("p", 1, "h@b#x"),
            ("p", 2, "h@b#y"),
            ("q", 3, "h@b"),
            ("q", 4, "h@bb#x"),
        ):
            db_rows.add_volume(project_id=project, size_gib=size, host=host)
        self.assertEqual({"p": (2, 3, 0, 0), "q": (1, 3, 0, 0)}, services.usage_by_project("h@b"))
        self.assertEqual({}, services.usage_by_project("h"))

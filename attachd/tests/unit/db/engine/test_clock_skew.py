# SPDX-License-Identifier: Apache-2.0
"""Offsets between the clocks of databases and this machine's."""

import contextlib
import datetime
import unittest
from unittest import mock

from oslo_utils import timeutils
import sqlalchemy as sa

from attachd.db import models
from attachd.db.engine import clock_skew, session
from attachd.manager.periodic_tasks import purge, recovery
from attachd.periodics import Backoff
from attachd.tests.fixtures import backends, databases, db_rows

SHIFTS = (datetime.timedelta(hours=-1), datetime.timedelta(hours=1))
LITTLE, NEARLY = datetime.timedelta(seconds=1), datetime.timedelta(minutes=1)


@contextlib.contextmanager
def shifted_clock(shift):
    """Set the clock of this process wrong; its connections to the database are new ones."""
    real = timeutils.utcnow
    session.dispose()
    with (
        mock.patch.object(timeutils, "utcnow", lambda: real() + shift),
        mock.patch.object(models._Clock, "booted_at", None),
    ):
        session.reader().close()
        yield
    session.dispose()


class ClockSkewTest(unittest.TestCase):
    def test_database_offset_on_same_machine_is_small(self):
        for kind in databases.KINDS:
            databases.use(self, kind)
            self.assertLess(abs(clock_skew.database_offset()), 60, kind)

    def test_database_offset_of_late_machine_is_positive(self):
        databases.use(self, "mariadb")
        with shifted_clock(SHIFTS[0]):
            self.assertAlmostEqual(3600, clock_skew.database_offset(), delta=60)


class ClockTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(models._Clock, "booted_at", None))

    def test_follow_clock_ignores_difference_within_tolerance(self):
        moment = timeutils.utcnow()
        self.enterContext(mock.patch.object(timeutils, "utcnow", return_value=moment))
        self.enterContext(mock.patch.object(models, "boot_clock", return_value=1000.0))
        for seconds, expected in ((0.4, 0), (-0.4, 0), (60, 60), (60.4, 60), (0, 0)):
            models.follow_clock(1000.0, moment + datetime.timedelta(seconds=seconds))
            self.assertEqual(datetime.timedelta(seconds=expected), models.now() - moment)

    def test_follow_clock_does_not_trust_slow_answer(self):
        asked_at, minute = models.boot_clock() - 60, datetime.timedelta(seconds=60)
        models.follow_clock(asked_at, timeutils.utcnow() - minute)  # The answer took that long.
        self.assertLess(abs(models.now() - timeutils.utcnow()), LITTLE)


class WrongClockTest(unittest.TestCase):
    """Another process has stored rows by the right clock; SQLite has no clock of its own."""

    def test_process_with_wrong_clock_stores_and_compares_time_of_database(self):
        for kind in set(databases.KINDS) - {"sqlite"}:
            for shift in SHIFTS:
                with self.subTest(kind, shift=shift):
                    backend = backends.use(self, kind)
                    right = models.now()
                    old, new = (self.add_interrupted(right - age) for age in (NEARLY, LITTLE))
                    late, early = (self.add_reservation(right + age) for age in (NEARLY, -LITTLE))
                    with shifted_clock(shift), mock.patch.object(recovery, "GRACE_PERIOD", 30.0):
                        recovery.recover_stale(backend, Backoff())
                        purge.expire_attachments(backend)
                        db_rows.report_service(backends.HOST)
                    states = {row["id"]: row["state"] for row in db_rows.list_attachments()}
                    self.assertEqual(
                        {old: "connected", new: "connecting", late: "reserved"}, states
                    )
                    self.assertNotIn(early, states)
                    (service,) = session.fetch_all(sa.select(models.services))
                    self.assertLess(abs(service["seen_at"] - right), NEARLY)

    def test_now_is_time_of_database_after_clock_of_machine_is_set(self):
        for kind in set(databases.KINDS) - {"sqlite"}:
            databases.use(self, kind)
            right, local = models.now(), timeutils.utcnow()
            for shift in SHIFTS:
                with (
                    self.subTest(kind, shift=shift),
                    mock.patch.object(timeutils, "utcnow", return_value=local + shift),
                ):
                    self.assertLess(abs(models.now() - right), NEARLY)

    def add_interrupted(self, moment):
        volume = db_rows.add_volume()["id"]
        times = {"created_at": moment, "updated_at": moment}
        return db_rows.add_attachment(volume, "connecting", **times)["id"]

    def add_reservation(self, expires_at):
        volume = db_rows.add_volume()["id"]
        return db_rows.add_attachment(volume, expires_at=expires_at)["id"]

# SPDX-License-Identifier: Apache-2.0
"""Tests of concurrent connects of multiattach volumes with limits, on each database."""

from collections import Counter
import functools
import threading
from unittest import mock

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd.db import models
from attachd.db.attachments import attachment_store
from attachd.db.engine import session
from attachd.db.types import type_store
from attachd.manager import attach, detach
from attachd.tests import concurrency
from attachd.tests.fixtures import backends, conf_fixture, db_rows
from attachd.tests.functional import race_case
from attachd.tests.functional.race_case import DatabaseRaceCase
from attachd.tests.selection import full_only

SEVERAL = {"multiattach": "<is> True"}


@full_only("races")
class SharingOnSqlite(DatabaseRaceCase):
    def setUp(self):
        self.backend = backends.use(self)
        super().setUp()

    def _volume(self, **specs):
        kind = type_store.create({"name": models.new_id(), "extra_specs": {**SEVERAL, **specs}})[
            "id"
        ]
        return db_rows.add_volume(multiattach=True, volume_type_id=kind)["id"]

    def _connect(self, attachment_id, volume, host, **more):
        """Return what connects an attachment, when it is called."""
        own = {"host": host, "initiator": f"iqn.2026-01.test:{host}"}
        connector = {**db_rows.CONNECTOR, **own, **more}
        return functools.partial(attach.attach, self.backend, attachment_id, volume, connector)

    def _detach(self, attachment_id, volume):
        return functools.partial(detach.detach, self.backend, attachment_id, volume)

    def _reserved(self, volume, **values):
        return db_rows.add_attachment(volume, **values)["id"]

    def _count(self, host):
        connected = [row for row in db_rows.list_attachments() if row["state"] != "reserved"]
        return sum(row["host"] == host for row in connected)

    def test_reserve_40_at_once_with_limit_5_succeeds_5_times(self):
        volume = self._volume(max_attachments="5")
        reserve = functools.partial(
            attachment_store.reserve, volume, {"project_id": db_rows.PROJECT}
        )
        for left in (5, 2, 0):
            outcomes = concurrency.run_at_once(*[reserve] * 40)
            kinds = Counter(type(outcome).__name__ for outcome in outcomes)
            self.assertEqual(left, kinds["dict"])
            self.assertEqual(40 - left, kinds["AttachmentLimitExceeded"])
            result = {f"{outcome}" for outcome in outcomes if isinstance(outcome, Exception)}
            (message,) = result
            self.assertIn("has 5 attachments, and may have 5 (max_attachments", message)
            for row in db_rows.list_attachments(volume)[:2] if left == 5 else ():
                db_rows.remove_attachment(row["id"])

    def test_connect_at_once_keeps_the_types_limit_per_host(self):
        volume = self._volume(max_attachments_per_host="3")
        calls = [
            self._connect(self._reserved(volume), volume, host)
            for host in ("one", "two")
            for _ in range(10)
        ]
        outcomes = race_case.outcomes(*calls)
        self.assertEqual({"dict": 6, "AttachmentLimitExceeded": 14}, outcomes)
        self.assertEqual((3, 3), (self._count("one"), self._count("two")))

    def test_connect_at_once_keeps_the_managers_limit_per_host(self):
        conf_fixture.override(self, "max_attachments_per_host", 7, group="manager")
        pairs = [(self._volume(), host) for host in ("one", "two", "three") for _ in range(12)]
        attachments = [self._reserved(volume) for volume, _host in pairs]
        calls = [
            self._connect(attachment, volume, host)
            for attachment, (volume, host) in zip(attachments, pairs, strict=True)
        ]
        outcomes = concurrency.run_at_once(*calls)
        kinds = Counter(type(outcome).__name__ for outcome in outcomes)
        self.assertEqual({"dict": 21, "AttachmentLimitExceeded": 15}, kinds)
        for host in ("one", "two", "three"):
            self.assertEqual(7, self._count(host))
        refused = next(outcome for outcome in outcomes if isinstance(outcome, Exception))
        self.assertRegex(f"{refused}", "Host .* has 7 attachments, and may have 7 .*max_att")
        # Who was refused has changed nothing.
        left = Counter(row["state"] for row in db_rows.list_attachments())
        self.assertEqual({"connected": 21, "reserved": 15}, left)

    def test_connect_at_once_after_detach_takes_the_free_slot_once(self):
        conf_fixture.override(self, "max_attachments_per_host", 4, group="manager")
        volumes = [self._volume() for _ in range(12)]
        attachments = [self._reserved(volume) for volume in volumes]
        for attachment, volume in zip(attachments[:4], volumes[:4], strict=True):
            self._connect(attachment, volume, "one")()
        calls = [
            *map(self._detach, attachments[:4], volumes[:4]),
            *map(self._connect, attachments[4:], volumes[4:], ["one"] * 8),
        ]
        most = []
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over, most))
        watcher.start()
        outcomes = concurrency.run_at_once(*calls)
        over.set()
        watcher.join()
        self.assertEqual([list] * 4, [type(outcome) for outcome in outcomes[:4]])
        self.assertLessEqual(max(most), 4)
        # The rest is available for the next calls.
        concurrency.run_at_once(*map(self._connect, attachments[4:], volumes[4:], ["one"] * 8))
        self.assertEqual(4, self._count("one"))

    def _watch(self, over, most):
        table = models.attachments
        existing = sa.select(sa.func.count()).where(
            table.c.host == "one", table.c.state != "reserved"
        )
        while not over.is_set():
            with session.reader() as connection:
                most.append(connection.execute(existing).scalar_one())

    def test_connect_of_two_volumes_at_two_hosts_at_once_does_not_deadlock(self):
        conf_fixture.override(self, "max_attachments_per_host", 100, group="manager")
        volumes = [self._volume() for _ in range(4)]
        deadlocks = self.enterContext(
            mock.patch.object(db_exception.DBDeadlock, "__init__", return_value=None)
        )
        for round_ in range(3):
            calls = []
            for number, volume in enumerate(volumes):
                hosts = [f"{round_}-{(index + number) % 4}" for index in range(4)]
                calls += [self._connect(self._reserved(volume), volume, host) for host in hosts]
            outcomes = race_case.outcomes(*calls)
            self.assertEqual({"dict": 16}, outcomes)
        self.assertEqual(0, deadlocks.call_count)

    def test_connect_20_at_once_with_one_writer_type_has_one_writer(self):
        volume = self._volume(mode="RO")
        attachments = [self._reserved(volume) for _ in range(20)]
        calls = [
            self._connect(attachment, volume, f"host-{attachment}") for attachment in attachments
        ]
        modes = Counter(item["mode"] for item in concurrency.run_at_once(*calls))
        self.assertEqual({"rw": 1, "ro": 19}, modes)
        (writer,) = [row["id"] for row in db_rows.list_attachments(volume) if row["mode"] == "rw"]
        detach.detach(self.backend, writer, volume)
        more = [self._reserved(volume) for _ in range(5)]
        calls = [self._connect(item, volume, f"host-{item}") for item in more]
        modes = Counter(item["mode"] for item in concurrency.run_at_once(*calls))
        self.assertEqual({"rw": 1, "ro": 4}, modes)

    def test_connect_for_writing_20_at_once_with_one_writer_type_succeeds_once(self):
        volume = self._volume(mode="RO")
        attachments = [self._reserved(volume, asked_mode="rw") for _ in range(20)]
        calls = [
            self._connect(attachment, volume, f"host-{attachment}") for attachment in attachments
        ]
        outcomes = race_case.outcomes(*calls)
        self.assertEqual({"dict": 1, "InvalidVolumeAttachMode": 19}, outcomes)


class SharingOnMariadb(SharingOnSqlite):
    kind = "mariadb"


class SharingOnPostgresql(SharingOnSqlite):
    kind = "postgresql"

# SPDX-License-Identifier: Apache-2.0
"""Recovery of the older calls after a manager was killed; part of periodic_tasks/recovery.py."""

import contextlib
import functools

from attachd import exception
from attachd.db.attachments import legacy
from attachd.db.attachments.legacy import Creator
from attachd.manager import detach, legacy_connections
from attachd.manager.periodic_tasks import ensure_exports
from attachd.tests.fixtures import backends, crash_injection, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR, OTHER_CONNECTOR

SERVER = "11111111-1111-4111-8111-111111111111"


class KilledTest(backends.BackendCase):
    """An operation is finished or was never begun, and can be repeated."""

    def _seen(self):
        held = [(row["kind"], row["state"]) for row in db_rows.list_attachments(self.volume_id)]
        return db_rows.get_volume(self.volume_id)["status"], held

    def _granted(self):
        attachment_id = {row["id"] for row in db_rows.list_attachments(self.volume_id)}
        return len(self.driver.granted() & attachment_id)

    def _reserve(self):
        self.volume_id = db_rows.add_volume()["id"]
        legacy.reserve(self.volume_id, db_rows.PROJECT, "u")

    def _initialize(self, connector=CONNECTOR):
        creator = Creator(db_rows.PROJECT, "u")
        return legacy_connections.initialize(self.backend, self.volume_id, creator, connector)

    def _terminate(self):
        return legacy_connections.terminate(self.backend, self.volume_id, CONNECTOR, [])

    def _release(self):
        if not self._terminate():
            held = db_rows.list_attachments(self.volume_id)
            legacy.release(self.volume_id, [row["id"] for row in held])
        self.assertEqual(("available", []), self._seen())
        self.assertEqual(set(), self.driver.granted())

    def test_recover_after_kill_finishes_initialize_or_leaves_volume(self):
        def prepare():
            self._reserve()
            return self._initialize

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                opened = [("connection", "connected")] if where != "before step 1" else []
                self.assertEqual(("attaching", [("hold", "held"), *opened]), self._seen())
                self.assertEqual(len(opened), self._granted())
                self._initialize()
                self.assertEqual(1, self._granted())
                self._release()

    def test_recover_after_kill_of_failing_initialize_keeps_reservation(self):
        def prepare():
            self._reserve()

            def work():
                with (
                    self.driver.failing("grant"),
                    contextlib.suppress(exception.InitializeConnectionFailed),
                ):
                    self._initialize()

            return work

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                status, held = self._seen()
                self.assertEqual(("attaching", ("hold", "held")), (status, held[0]))
                connected = held[1:] == [("connection", "connected")]
                self.assertEqual(connected, self._granted() == 1)
                self._release()

    def test_recover_after_kill_finishes_terminate_or_allows_repeat(self):
        def prepare():
            self._reserve()
            self._initialize()
            return self._terminate

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                status, held = self._seen()
                never_started = where == "before step 1"
                self.assertEqual(never_started, ("connection", "connected") in held)
                self.assertEqual(int(never_started), self._granted())
                self.assertEqual("attaching" if held else "available", status)
                self._release()

    def test_recover_after_kill_removes_attachment_with_connections_or_none(self):
        def prepare():
            self._reserve()
            self._initialize()
            self._initialize(OTHER_CONNECTOR)
            claim = {"project_id": db_rows.PROJECT, "user_id": "u", "instance_uuid": SERVER}
            claim |= {"host": None, "mountpoint": "m", "mode": "rw"}
            attachment_id = legacy.attach(self.volume_id, claim)["id"]
            return functools.partial(detach.detach, self.backend, attachment_id, self.volume_id)

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                status, held = self._seen()
                if where == "before step 1":
                    self.assertEqual(("in-use", 2), (status, self._granted()))
                    continue
                self.assertEqual(("available", []), (status, held))
                self.assertEqual(0, self._granted())

    def test_grant_again_after_restart_restores_connections(self):
        self._reserve()
        self._initialize()
        self.driver.restart()
        (row,) = [
            attachment
            for attachment in db_rows.list_attachments(self.volume_id)
            if attachment["connector"]
        ]
        ensure_exports.grant_again(self.backend, row)
        self.assertEqual(1, self._granted())

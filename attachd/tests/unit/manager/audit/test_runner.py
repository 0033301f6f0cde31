# SPDX-License-Identifier: Apache-2.0
"""How an audit goes about it; what it finds in real backends is for the functional tests."""

import datetime
import unittest
from unittest import mock
import uuid

from attachd import exception
from attachd.db import audit as audit_db
from attachd.db import models
from attachd.drivers import base
from attachd.manager.audit import runner
from attachd.manager.audit.rules import REPAIRED, Kind
from attachd.tests import backends, rows

GIB = 2**30


class AuditTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.volume = rows.add_volume()
        self.ref = base.VolumeRef(self.volume["id"], 1)
        self.driver.create(self.ref)
        self.row = rows.add_attachment(self.ref.id, "attached")
        self.driver.grant(self.ref, base.Export(self.row["id"], {}))

    def found(self, work=runner.compare):
        findings = work(self.backend)
        self.assertEqual([], findings.not_compared)
        return [(each.kind, each.volume_id, each.outcome) for each in findings.differences]

    def test_what_agrees_is_not_told_and_no_lock_is_taken(self):
        with mock.patch.object(self.backend, "lock") as lock:
            self.assertEqual([], self.found())
        lock.assert_not_called()

    def test_comparing_changes_nothing(self):
        self.driver.restart()
        self.assertEqual([(Kind.MISSING_EXPORT, self.ref.id, "")], self.found())
        self.assertEqual([(Kind.MISSING_EXPORT, self.ref.id, "")], self.found())

    def test_a_suspicion_is_dropped_that_the_lock_does_not_confirm(self):
        listed = list(self.driver.list_exports())
        with mock.patch.object(self.driver, "list_exports", side_effect=[[], listed]) as exports:
            self.assertEqual([], self.found())
        self.assertEqual(2, exports.call_count)

    def test_repairs_are_done_under_the_lock_and_told(self):
        self.driver.restart()
        held = []
        self.driver.script = lambda _call: held.append(rows.volume(self.ref.id)["lease_holder"])
        self.assertEqual([(Kind.MISSING_EXPORT, self.ref.id, REPAIRED)], self.found(runner.repair))
        self.driver.script = None
        self.assertIn(self.backend.membership.id, held)
        self.assertIsNone(rows.volume(self.ref.id)["lease_holder"])
        self.assertEqual({self.row["id"]}, self.driver.granted())
        self.assertEqual([], self.found())

    def test_nothing_is_done_to_what_has_data_and_no_row(self):
        """The database may be another one, or of last week."""
        rows.remove_all()
        found = self.found(runner.repair)
        self.assertEqual(
            {(Kind.LEFTOVER_EXPORT, ""), (Kind.DATA_WITHOUT_VOLUME, "")},
            {(kind, outcome) for kind, _volume, outcome in found},
        )
        self.assertEqual({self.row["id"]}, self.driver.granted())

    def test_a_leftover_of_a_volume_without_a_row_and_without_data_is_revoked(self):
        rows.remove_all()
        with mock.patch.object(self.driver, "list_volumes", return_value={}):
            found = self.found(runner.repair)
        self.assertEqual([(Kind.LEFTOVER_EXPORT, self.ref.id, REPAIRED)], found)
        self.assertEqual(set(), self.driver.granted())

    def test_what_cannot_be_repaired_says_why(self):
        rows.remove_attachment(self.row["id"])
        with self.driver.failing("revoke_all_except"):
            ((_kind, _volume, outcome),) = self.found(runner.repair)
        self.assertIn("The shelf burns", outcome)

    def test_a_volume_of_another_backend_is_told_and_left_alone(self):
        rows.change_volume(self.ref.id, host="here@other#pool")
        self.assertEqual([(Kind.ELSEWHERE, self.ref.id, "")], self.found(runner.repair))
        self.assertEqual({self.row["id"]}, self.driver.granted())

    def test_data_that_is_gone_too_short_or_nobody_s_is_told_and_left_alone(self):
        stored = {f"{uuid.uuid4()}": 7}
        with mock.patch.object(self.driver, "list_volumes", return_value=stored):
            kinds = [kind for kind, _volume, _outcome in self.found(runner.repair)]
        self.assertEqual([Kind.VOLUME_WITHOUT_DATA, Kind.DATA_WITHOUT_VOLUME], kinds)
        with mock.patch.object(self.driver, "list_volumes", return_value={self.ref.id: GIB - 1}):
            self.assertEqual([(Kind.SIZE, self.ref.id, "")], self.found(runner.repair))

    def test_volumes_that_need_not_have_data_are_not_looked_for(self):
        for state in ("creating", "deleting", "error", "error_deleting"):
            rows.add_volume(state)
        self.assertEqual([], self.found())

    def test_a_dead_manager_s_work_is_left_to_the_next_one_with_its_lease(self):
        rows.change_attachment(self.row["id"], state="disconnecting")
        dead = str(uuid.uuid4())
        rows.change_volume(self.ref.id, lease_holder=dead, status="detaching")
        self.assertEqual([(Kind.HALF_WAY, self.ref.id, "")], self.found(runner.repair))
        self.assertEqual(dead, rows.volume(self.ref.id)["lease_holder"])

    def test_work_that_nobody_has_begun_is_half_way_only_after_a_while(self):
        deleting = rows.add_volume("deleting")
        self.assertEqual([], self.found())
        old = models.now() - datetime.timedelta(hours=1)
        rows.change_volume(deleting["id"], created_at=old, updated_at=old)
        self.assertEqual([(Kind.HALF_WAY, deleting["id"], "")], self.found())

    def test_a_status_is_corrected(self):
        rows.change_volume(self.ref.id, status="available")
        self.assertEqual([(Kind.STATUS, self.ref.id, REPAIRED)], self.found(runner.repair))
        self.assertEqual("in-use", rows.volume(self.ref.id)["status"])

    def test_a_status_that_moves_while_rows_are_read_is_no_difference(self):
        real = audit_db.list_attachments_of_volume

        def complete_meanwhile(volume_id):
            found = real(volume_id)
            rows.add_attachment(volume_id, "reserved")
            return found

        rows.change_volume(self.ref.id, status="available")
        with (
            mock.patch.object(audit_db, "list_attachments_of_volume", complete_meanwhile),
            mock.patch.object(self.backend, "lock", self._corrected_before_the_lock),
        ):
            self.assertEqual([], self.found())

    def _corrected_before_the_lock(self, volume_id):
        audit_db.repair_status(volume_id)
        return mock.MagicMock()

    def test_a_backend_that_is_down_or_does_not_answer_is_not_compared(self):
        with self.driver.failing("list_exports"):
            findings = runner.compare(self.backend)
        self.assertEqual(1, len(findings.not_compared))
        self.backend.take_down(exception.BackendError("It burns."))
        (why,) = runner.compare(self.backend).not_compared
        self.assertIn("fake is down", why)

    def test_a_volume_that_cannot_be_had_keeps_nobody_from_the_others(self):
        other = rows.add_volume()
        self.driver.restart()
        busy = exception.Unavailable(reason="It is busy.")
        real = self.backend.lock

        def lock(volume_id):
            if volume_id == self.ref.id:
                raise busy
            return real(volume_id)

        with mock.patch.object(self.backend, "lock", lock):
            findings = runner.compare(self.backend)
        self.assertEqual([other["id"]], [each.volume_id for each in findings.differences])
        self.assertEqual(1, len(findings.not_compared))
        self.assertIn(self.ref.id, findings.not_compared[0])

    def test_what_is_of_no_volume_is_told_unless_a_row_explains_it(self):
        lost = base.Orphan("CHAP account lost", "Remove it by hand.")
        known = base.Orphan("known", "Remove it by hand.")
        wanted = base.BackendExport(self.ref.id, "rw", parts=frozenset(["known"]))
        with (
            mock.patch.object(self.driver, "list_orphans", return_value=[lost, known]),
            mock.patch.object(runner, "_suspects", return_value=[]),
            mock.patch.object(self.driver, "expected_exports", return_value=[wanted]),
        ):
            (found,) = runner.repair(self.backend).differences
        self.assertEqual((Kind.UNPLACED, "", ""), (found.kind, found.volume_id, found.outcome))
        self.assertEqual(lost.remedy, found.action)

# SPDX-License-Identifier: Apache-2.0
"""The course of an audit; functional tests check its results with real backends."""

import datetime
from unittest import mock
import uuid

from attachd import exception
from attachd.db import audit, host_fences, models
from attachd.db.volumes import volume_queries
from attachd.drivers import base
from attachd.manager.audit import runner
from attachd.manager.audit.rules import MEANINGS, REPAIRED, Kind
from attachd.tests.fixtures import backends, db_rows

GIB = 2**30


def kept(kind):
    return f"Kept: {MEANINGS[kind].kept}"


class AuditTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()
        self.ref = base.VolumeRef(self.volume["id"], 1)
        self.driver.create(self.ref)
        self.row = db_rows.add_attachment(self.ref.id, "attached")
        self.driver.grant(self.ref, base.Export(self.row["id"], {}))

    def found(self, work=runner.compare):
        findings = work(self.backend)
        self.assertEqual([], findings.not_compared)
        return [
            (difference.kind, difference.volume_id, difference.outcome)
            for difference in findings.differences
        ]

    def test_compare_consistent_system_takes_no_lock(self):
        with mock.patch.object(self.backend, "lock") as lock:
            self.assertEqual([], self.found())
        lock.assert_not_called()

    def test_compare_exports_confirms_differences_under_lock(self):
        with mock.patch.object(self.backend, "lock") as lock:
            self.assertEqual([], runner.compare_exports(self.backend, self.ref.id))
            lock.assert_not_called()
            self.driver.restart()
            (found,) = runner.compare_exports(self.backend, self.ref.id)
            lock.assert_called_once_with(self.ref.id)
        self.assertRegex(found, f"{self.row['id']} has no access")

    def test_compare_exports_of_silent_backend_is_unavailable(self):
        with (
            self.driver.failing("list_exports"),
            self.assertRaisesRegex(exception.Unavailable, "does not answer: .*The backend"),
        ):
            runner.compare_exports(self.backend, self.ref.id)

    def test_compare_exports_of_driver_without_list_finds_nothing(self):
        self.driver.restart()
        self.backend.driver = backends.without_abilities(self.driver)
        self.assertEqual([], runner.compare_exports(self.backend, self.ref.id))

    def test_compare_volume_reports_missing_data_and_exports(self):
        self.assertEqual([], runner.compare_volume(self.backend, self.ref.id))
        self.driver.restart()
        (found,) = runner.compare_volume(self.backend, self.ref.id)
        self.assertRegex(found, f"{self.row['id']} has no access")
        with mock.patch.object(self.driver, "has_volume", return_value=False):
            (found,) = runner.compare_volume(self.backend, self.ref.id)
        self.assertEqual("Backend fake has no data of the volume.", found)

    def test_compare_volume_of_silent_backend_is_unavailable(self):
        error = exception.BackendError("It is away.")
        with (
            mock.patch.object(self.driver, "has_volume", side_effect=error),
            self.assertRaisesRegex(exception.Unavailable, "does not answer"),
        ):
            runner.compare_volume(self.backend, self.ref.id)

    def test_compare_of_driver_without_list_compares_data_and_status(self):
        self.driver.restart()
        db_rows.change_volume(self.ref.id, status="deleting")
        with mock.patch.object(self.driver, "list_volumes", return_value={}):
            self.backend.driver = backends.without_abilities(self.driver)
            result = runner.repair(self.backend)
        kinds = {difference.kind for difference in result.differences}
        self.assertEqual({Kind.VOLUME_WITHOUT_DATA, Kind.STATUS}, kinds)
        (reason,) = result.not_compared
        self.assertIn("does not list exports", reason)

    def test_repair_by_driver_that_cannot_evict_says_so(self):
        db_rows.remove_attachment(self.row["id"])
        with mock.patch.object(runner, "Evict", type("Other", (), {})):  # it has not
            (difference,) = runner.repair(self.backend).differences
        self.assertEqual(Kind.ORPHAN_EXPORT, difference.kind)
        self.assertIn("cannot revoke", difference.outcome)

    def test_compare_changes_nothing(self):
        self.driver.restart()
        self.assertEqual([(Kind.MISSING_EXPORT, self.ref.id, "")], self.found())
        self.assertEqual([(Kind.MISSING_EXPORT, self.ref.id, "")], self.found())

    def test_compare_goes_through_all_pages(self):
        lost = [db_rows.add_volume()["id"] for _ in range(3)]
        with mock.patch.object(volume_queries, "PAGE", 2):
            self.assertEqual(
                [(Kind.VOLUME_WITHOUT_DATA, volume_id, "") for volume_id in sorted(lost)],
                self.found(),
            )

    def test_compare_finds_lost_data_of_volume_that_awaits_its_transfer(self):
        lost = db_rows.add_volume("awaiting-transfer")["id"]
        self.assertIn((Kind.VOLUME_WITHOUT_DATA, lost, ""), self.found())

    def test_compare_drops_suspicion_not_confirmed_under_lock(self):
        listed = list(self.driver.list_exports())
        with mock.patch.object(self.driver, "list_exports", side_effect=[[], listed]) as exports:
            self.assertEqual([], self.found())
        self.assertEqual(2, exports.call_count)

    def test_repair_runs_under_lock_and_is_reported(self):
        self.driver.restart()
        held = []
        self.driver.script = lambda _call: held.append(
            db_rows.get_volume(self.ref.id)["lease_holder"]
        )
        self.assertEqual([(Kind.MISSING_EXPORT, self.ref.id, REPAIRED)], self.found(runner.repair))
        self.driver.script = None
        self.assertIn(self.backend.membership.id, held)
        self.assertIsNone(db_rows.get_volume(self.ref.id)["lease_holder"])
        self.assertEqual({self.row["id"]}, self.driver.granted())
        self.assertEqual([], self.found())

    def test_repair_of_data_without_row_does_nothing(self):
        """The database may be the wrong one, or an old backup."""
        db_rows.remove_all()
        found = self.found(runner.repair)
        outcomes = {kind: outcome for kind, _volume, outcome in found}
        self.assertEqual({Kind.ORPHAN_EXPORT, Kind.DATA_WITHOUT_VOLUME}, outcomes.keys())
        self.assertIn("this may be the wrong database", outcomes[Kind.ORPHAN_EXPORT])
        self.assertEqual(kept(Kind.DATA_WITHOUT_VOLUME), outcomes[Kind.DATA_WITHOUT_VOLUME])
        self.assertEqual({self.row["id"]}, self.driver.granted())

    def test_repair_revokes_export_without_row_and_data(self):
        db_rows.remove_all()
        with mock.patch.object(self.driver, "list_volumes", return_value={}):
            found = self.found(runner.repair)
        self.assertEqual([(Kind.ORPHAN_EXPORT, self.ref.id, REPAIRED)], found)
        self.assertEqual(set(), self.driver.granted())

    def test_repair_failure_has_reason(self):
        db_rows.remove_attachment(self.row["id"])
        with self.driver.failing("revoke_all_except"):
            ((_kind, _volume, outcome),) = self.found(runner.repair)
        self.assertIn("The backend failed", outcome)

    def test_repair_grants_no_fenced_host_access(self):
        """As after a backup was restored: the export was revoked by the fence."""
        connector = db_rows.OTHER_CONNECTOR
        columns = {"connector": connector, "host": connector["host"]}
        other = db_rows.add_attachment(self.ref.id, "attached", **columns)["id"]
        self.driver.restart()
        host_fences.fence(db_rows.CONNECTOR["host"], "it hangs", None)
        outcomes = [outcome for _kind, _volume, outcome in self.found(runner.repair)]
        self.assertEqual({other}, self.driver.granted())
        self.assertEqual(1, sum("compute-1 is fenced since" in outcome for outcome in outcomes))

    def test_repair_grants_drained_host_access(self):
        self.driver.restart()
        host_fences.drain(db_rows.CONNECTOR["host"], None, None)
        self.assertEqual([(Kind.MISSING_EXPORT, self.ref.id, REPAIRED)], self.found(runner.repair))
        self.assertEqual({self.row["id"]}, self.driver.granted())

    def test_repair_of_volume_of_other_backend_does_nothing(self):
        db_rows.change_volume(self.ref.id, host="here@other#pool")
        expected = [(Kind.WRONG_BACKEND, self.ref.id, kept(Kind.WRONG_BACKEND))]
        self.assertEqual(expected, self.found(runner.repair))
        self.assertEqual({self.row["id"]}, self.driver.granted())

    def test_repair_of_missing_short_or_unknown_data_does_nothing(self):
        stored = {f"{uuid.uuid4()}": 7}
        with mock.patch.object(self.driver, "list_volumes", return_value=stored):
            kinds = [kind for kind, _volume, _outcome in self.found(runner.repair)]
        self.assertEqual([Kind.VOLUME_WITHOUT_DATA, Kind.DATA_WITHOUT_VOLUME], kinds)
        with mock.patch.object(self.driver, "list_volumes", return_value={self.ref.id: GIB - 1}):
            expected = [(Kind.SIZE, self.ref.id, kept(Kind.SIZE))]
            self.assertEqual(expected, self.found(runner.repair))

    def test_compare_volumes_without_expected_data_finds_no_difference(self):
        for state in ("creating", "deleting", "error", "error_deleting"):
            db_rows.add_volume(state)
        self.assertEqual([], self.found())

    def test_repair_of_interrupted_operation_keeps_lease_of_dead_manager(self):
        db_rows.change_attachment(self.row["id"], state="disconnecting")
        dead = str(uuid.uuid4())
        db_rows.change_volume(self.ref.id, lease_holder=dead, status="detaching")
        expected = [(Kind.INTERRUPTED, self.ref.id, kept(Kind.INTERRUPTED))]
        self.assertEqual(expected, self.found(runner.repair))
        self.assertEqual(dead, db_rows.get_volume(self.ref.id)["lease_holder"])

    def test_compare_operation_not_started_is_interrupted_after_timeout(self):
        deleting = db_rows.add_volume("deleting")
        self.assertEqual([], self.found())
        old = models.now() - datetime.timedelta(hours=1)
        db_rows.change_volume(deleting["id"], created_at=old, updated_at=old)
        self.assertEqual([(Kind.INTERRUPTED, deleting["id"], "")], self.found())

    def test_repair_corrects_status(self):
        db_rows.change_volume(self.ref.id, status="available")
        self.assertEqual([(Kind.STATUS, self.ref.id, REPAIRED)], self.found(runner.repair))
        self.assertEqual("in-use", db_rows.get_volume(self.ref.id)["status"])

    def test_compare_status_changed_while_reading_finds_no_difference(self):
        real = audit.list_attachments_of_volume

        def complete_meanwhile(volume_id):
            found = real(volume_id)
            db_rows.add_attachment(volume_id, "reserved")
            return found

        db_rows.change_volume(self.ref.id, status="available")
        with (
            mock.patch.object(audit, "list_attachments_of_volume", complete_meanwhile),
            mock.patch.object(self.backend, "lock", self._corrected_before_the_lock),
        ):
            self.assertEqual([], self.found())

    def _corrected_before_the_lock(self, volume_id):
        audit.repair_status(volume_id)
        return mock.MagicMock()

    def test_compare_backend_down_or_silent_is_not_compared(self):
        with self.driver.failing("list_exports"):
            findings = runner.compare(self.backend)
        self.assertEqual(1, len(findings.not_compared))
        self.backend.take_down(exception.BackendError("It burns."))
        (why,) = runner.compare(self.backend).not_compared
        self.assertIn("fake is down", why)

    def test_compare_locked_volume_does_not_block_others(self):
        other = db_rows.add_volume()
        self.driver.restart()
        busy = exception.Unavailable(reason="It is busy.")
        real = self.backend.lock

        def lock(volume_id):
            if volume_id == self.ref.id:
                raise busy
            return real(volume_id)

        with mock.patch.object(self.backend, "lock", lock):
            findings = runner.compare(self.backend)
        self.assertEqual(
            [other["id"]], [difference.volume_id for difference in findings.differences]
        )
        self.assertEqual(1, len(findings.not_compared))
        self.assertIn(self.ref.id, findings.not_compared[0])

    def test_compare_orphan_without_row_is_reported(self):
        lost = base.Orphan("CHAP account lost", "Remove it by hand.")
        known = base.Orphan("known", "Remove it by hand.")
        wanted = base.BackendExport(self.ref.id, "rw", parts=frozenset(["known"]))
        with (
            mock.patch.object(self.driver, "list_orphans", return_value=[lost, known]),
            mock.patch.object(runner, "_suspects", return_value=[]),
            mock.patch.object(self.driver, "expected_exports", return_value=[wanted]),
        ):
            (found,) = runner.repair(self.backend).differences
        self.assertEqual(
            (Kind.ORPHAN_ACCOUNT, "", kept(Kind.ORPHAN_ACCOUNT)),
            (found.kind, found.volume_id, found.outcome),
        )
        self.assertEqual(lost.remedy, found.action)

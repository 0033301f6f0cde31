# SPDX-License-Identifier: Apache-2.0
"""Exports that are granted again after a backend was restarted."""

from unittest import mock

from attachd import exception
from attachd.db import host_fences
from attachd.db.attachments import backend_attachments
from attachd.db.volumes import volume_queries
from attachd.manager import attach, detach
from attachd.manager.periodic_tasks import ensure_exports
from attachd.periodics import MIN_BACKOFF, Backoff
from attachd.states import AttachmentState
from attachd.tests.fixtures import backends, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR


class EnsureExportsTest(backends.BackendCase):
    """A backend was restarted and has lost its exports."""

    def setUp(self):
        super().setUp()
        self.ids, volumes = [], []
        for _ in range(3):
            volume_id = db_rows.add_volume()["id"]
            volumes.append(volume_id)
            self.ids.append(db_rows.add_attachment(volume_id)["id"])
            attach.attach(self.backend, self.ids[-1], volume_id, CONNECTOR)
        self.read = backend_attachments.list_live(volumes)
        self.driver.restart()

    def _grant_again(self):
        return ensure_exports.ensure_exports(self.backend, self.read, Backoff())

    def test_ensure_exports_grants_all(self):
        self.assertEqual([], self._grant_again())
        self.assertEqual(set(self.ids), self.driver.granted())

    def test_ensure_exports_returns_failed_rows(self):
        def script(call):
            if call.attachment == self.ids[1]:
                raise exception.BackendError("still booting")

        self.driver.script = script
        left = self._grant_again()
        self.assertEqual([self.ids[1]], [row["id"] for row in left])
        self.assertEqual({self.ids[0], self.ids[2]}, self.driver.granted())

    def test_ensure_exports_grants_no_fenced_host_access(self):
        host_fences.fence(CONNECTOR["host"], "it hangs", None)
        self.assertEqual(self.ids, [row["id"] for row in self._grant_again()])
        self.assertEqual(set(), self.driver.granted())
        host_fences.lift(CONNECTOR["host"])
        self.assertEqual([], self._grant_again())

    def test_ensure_exports_skips_detached_rows(self):
        detach.detach(self.backend, self.ids[0], self.read[0]["volume_id"])
        self.assertEqual([], self._grant_again())
        self.assertEqual({self.ids[1], self.ids[2]}, self.driver.granted())


class EnsureExportsTaskTest(backends.BackendCase):
    """Consecutive runs of the task."""

    def setUp(self):
        super().setUp()
        self.task = ensure_exports.EnsureExportsTask(self.backend)

    def _attached(self):
        volume_id = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume_id)["id"]
        attach.attach(self.backend, attachment_id, volume_id, CONNECTOR)
        return attachment_id

    def test_run_once_after_restart_grants_again(self):
        self.task.run_once()
        attachment_id = self._attached()
        self.driver.restart()
        self.task.run_once()
        self.assertEqual({attachment_id}, self.driver.granted())

    def test_run_once_without_restart_grants_nothing(self):
        self._attached()
        self.task.run_once()
        granted = self.driver.methods.count("grant")
        self.task.run_once()
        self.assertEqual(granted, self.driver.methods.count("grant"))

    def test_run_once_retries_failed_attachments_only(self):
        self.task.run_once()
        attachment_id, other = self._attached(), self._attached()
        clock = self.enterContext(mock.patch("attachd.periodics.time"))
        clock.monotonic.return_value = 1000.0

        def script(call):
            if call.attachment == attachment_id and call.method == "grant":
                raise exception.BackendError("still booting")

        self.driver.restart()
        self.driver.script = script
        self.task.run_once()
        self.assertEqual({other}, self.driver.granted())
        self.assertIsNone(self.backend.error, "one attachment does not take a backend down")
        self.driver.script = None
        self.driver.driver_calls.clear()
        self.task.run_once()
        self.assertEqual([], self.driver.driver_calls, "it is tried again later")
        clock.monotonic.return_value += MIN_BACKOFF
        self.task.run_once()
        self.assertEqual(
            [attachment_id],
            [driver_call.export.attachment_id for driver_call in self.driver.driver_calls],
        )
        self.assertEqual({attachment_id, other}, self.driver.granted())

    def test_run_once_of_another_process_grants_only_what_is_lost(self):
        attachment_id, lost = self._attached(), self._attached()
        granted = self.driver.driver_calls[-1]
        self.driver.revoke(granted.volume, granted.export, [])
        self.driver.driver_calls.clear()
        self.task.run_once()
        self.assertEqual([lost], [item.export.attachment_id for item in self.driver.driver_calls])
        self.assertEqual({attachment_id, lost}, self.driver.granted())

    def test_run_once_without_listing_grants_all(self):
        attachment_ids = {self._attached(), self._attached()}
        self.driver.driver_calls.clear()
        with self.driver.failing("list_exports"):
            self.task.run_once()
        granted = {item.export.attachment_id for item in self.driver.driver_calls}
        self.assertEqual(attachment_ids, granted)

    def test_run_once_continues_after_backend_was_down(self):
        self.task.run_once()
        attachment_ids = {self._attached() for _ in range(3)}
        self.driver.restart()

        def script(call):
            if call.method == "grant":
                self.backend.error = "down"

        self.driver.script = script
        with mock.patch.object(volume_queries, "PAGE", 1):
            self.task.run_once()
            self.assertEqual(1, len(self.driver.granted()))
            self.driver.script, self.backend.error = None, None
            self.task.run_once()
        self.assertEqual(attachment_ids, self.driver.granted())

    def test_run_once_after_database_failure_grants_again(self):
        self.task.run_once()
        attachment_id = self._attached()
        self.driver.restart()
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(backend_attachments, "list_live", side_effect=gone):
            self.assertRaises(exception.Unavailable, self.task.run_once)
        self.task.run_once()
        self.assertEqual({attachment_id}, self.driver.granted())

    def test_run_once_after_failed_boot_id_grants_again(self):
        self.task.run_once()
        attachment_id = self._attached()
        self.driver.restart()
        with self.driver.failing("boot_id"):
            self.task.run_once()
            self.assertEqual(set(), self.driver.granted())
        self.task.run_once()
        self.assertEqual({attachment_id}, self.driver.granted())

    def test_run_once_with_backend_down_grants_nothing(self):
        self.task.run_once()
        attachment_id = self._attached()
        self.driver.restart()
        self.backend.error = "down"
        self.task.run_once()
        self.assertEqual(set(), self.driver.granted())
        self.backend.error = None
        self.task.run_once()
        self.assertEqual({attachment_id}, self.driver.granted())


class GrantAgainTest(backends.BackendCase):
    """A backend has lost its exports."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(provider={"lun": 7}, multiattach=True)["id"]

    def test_grant_again_uses_same_arguments(self):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        attach.attach(self.backend, attachment_id, self.volume_id, {**CONNECTOR, "mode": "ro"})
        before = db_rows.get_attachment(attachment_id)
        self.driver.restart()
        ensure_exports.grant_again(self.backend, before)
        first, second = self.driver.driver_calls
        self.assertEqual(first, second)
        self.assertEqual(before, db_rows.get_attachment(attachment_id))

    def test_grant_again_skips_states_without_access(self):
        for state in AttachmentState:
            attachment = db_rows.add_attachment(self.volume_id, state.value)
            ensure_exports.grant_again(self.backend, {**attachment, "state": "connected"})
        granted = [db_rows.get_attachment(item)["state"] for item in self.driver.granted()]
        self.assertEqual(["attached", "connected", "withdrawing"], sorted(granted))

    def test_grant_again_skips_attached_row_without_connector(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached", connector=None)
        ensure_exports.grant_again(self.backend, attachment_id)
        self.assertEqual([], self.driver.driver_calls)

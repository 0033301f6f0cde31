# SPDX-License-Identifier: Apache-2.0
"""Disconnects from each state; manager/detach.py."""

import dataclasses
from unittest import mock

from attachd import exception
from attachd.db import messages
from attachd.db.attachments import async_requests, attachment_store, events
from attachd.db.engine.paging import Page
from attachd.manager import attach, detach, notify
from attachd.states import AttachmentState
from attachd.tests.fixtures import backends, db_rows, fake_agent
from attachd.tests.fixtures.db_rows import CONNECTOR, OTHER_CONNECTOR


class DetachTest(backends.BackendCase):
    """The host's access is revoked, then the row is removed."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(provider={"lun": 7}, multiattach=True)["id"]

    def _detach(self, attachment_id):
        return detach.detach(self.backend, attachment_id, self.volume_id)

    def _connected(self, connector=CONNECTOR):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        attach.attach(self.backend, attachment_id, self.volume_id, connector)
        return attachment_id

    def test_detach_succeeds_in_every_state(self):
        for state in set(AttachmentState) - {AttachmentState.HELD}:
            attachment_id = db_rows.add_attachment(self.volume_id, state.value)["id"]
            self.assertEqual([], self._detach(attachment_id), state)
            self.assertEqual([], db_rows.list_attachments(self.volume_id), state)
            volume = db_rows.get_volume(self.volume_id)
            self.assertEqual(
                ("available", "detached"), (volume["status"], volume["attach_status"])
            )

    def test_detach_calls_driver_only_if_connector_was_stored(self):
        for state in set(AttachmentState) - {AttachmentState.HELD}:
            self.driver.driver_calls.clear()
            self._detach(db_rows.add_attachment(self.volume_id, state.value)["id"])
            asked = [] if state == "reserved" else ["revoke"]
            self.assertEqual(asked, self.driver.methods, state)

    def test_missing_volume_is_detached_by_force_alone(self):
        attachment_id = self._connected()
        self.driver.driver_calls.clear()
        for is_fenced in (False, True):
            if is_fenced:
                async_requests.fence(attachment_id, self.volume_id)
            row = db_rows.get_attachment(attachment_id)
            with (
                mock.patch.object(self.driver, "has_volume", return_value=False),
                self.assertRaisesRegex(exception.DisconnectFailed, "has no volume.*by force"),
            ):
                detach.finish_detach(self.backend, row)
            self.assertEqual([], self.driver.methods)
            row = db_rows.get_attachment(attachment_id)
            self.assertEqual("disconnect_failed", row["state"])
        with mock.patch.object(self.driver, "has_volume", return_value=False):
            detach.force_detach(self.backend, attachment_id, self.volume_id, "admin")
        self.assertEqual(["revoke"], self.driver.methods)
        self.assertEqual([], db_rows.list_attachments(self.volume_id))

    def test_detach_attached_row_without_connector_skips_driver(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached", connector=None)["id"]
        self._detach(attachment_id)
        self.assertEqual([], self.driver.driver_calls)

    def test_detach_stores_state_before_driver_call(self):
        attachment_id = self._connected()
        seen = []
        self.driver.script = lambda _call: seen.append(
            (db_rows.get_attachment(attachment_id), db_rows.get_volume(self.volume_id))
        )
        self._detach(attachment_id)
        row, volume = seen[0]
        self.assertEqual(("disconnecting", 2), (row["state"], row["generation"]))
        self.assertIsNotNone(volume["lease_holder"])

    def test_detach_passes_granted_export_and_others_to_driver(self):
        attachment_id = self._connected()
        other = self._connected(OTHER_CONNECTOR)
        for state in ("reserved", "connect_failed", "connect_unknown", "disconnecting"):
            db_rows.add_attachment(self.volume_id, state)
        self._detach(attachment_id)
        granted, revoked = (
            driver_call
            for driver_call in self.driver.driver_calls
            if driver_call.export.attachment_id == attachment_id
        )
        self.assertRegex(granted.export.secret, "^[0-9A-Za-z]{32}$")
        # A revoke needs no secret.
        without = dataclasses.replace(granted.export, secret="")
        self.assertEqual((granted.volume, without), (revoked.volume, revoked.export))
        self.assertEqual([other], [item.attachment_id for item in revoked.others])
        self.assertEqual(OTHER_CONNECTOR, revoked.others[0].connector)

    def test_detach_returns_remaining_attachments(self):
        attachment_id, other = self._connected(), self._connected(OTHER_CONNECTOR)
        self.assertEqual([other], [row["id"] for row in self._detach(attachment_id)])
        self.assertEqual({other}, self.driver.granted())
        self.assertEqual("attaching", db_rows.get_volume(self.volume_id)["status"])

    def test_detach_twice_raises_not_found(self):
        attachment_id = self._connected()
        self._detach(attachment_id)
        with self.assertRaises(exception.AttachmentNotFound):
            self._detach(attachment_id)

    def test_detach_with_backend_down_leaves_row(self):
        attachment_id = self._connected()
        self.backend.error = "the cable is out"
        with self.assertRaises(exception.Unavailable):
            self._detach(attachment_id)
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_detach_volume_in_error_restores_status_beside_doubtful_attachment(self):
        doubtful = db_rows.add_attachment(self.volume_id, "connect_unknown")["id"]
        attachment_id = db_rows.add_attachment(self.volume_id, "connect_failed")["id"]
        db_rows.change_volume(self.volume_id, state="error", status="error")
        self._detach(attachment_id)
        volume = db_rows.get_volume(self.volume_id)
        self.assertEqual(("ready", "error"), (volume["state"], volume["status"]))
        attach.attach_exclusive(self.backend, doubtful, self.volume_id, CONNECTOR)
        self.assertEqual("attaching", db_rows.get_volume(self.volume_id)["status"])


class AllowedStatesTest(backends.BackendCase):
    """The caller allows only some states, and the state may have changed."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]

    def _detach(self, state, seen):
        attachment_id = db_rows.add_attachment(self.volume_id, state)["id"]
        detach.detach(self.backend, attachment_id, self.volume_id, seen)

    def test_detach_in_allowed_state_removes_row(self):
        for state in ("reserved", "connect_failed"):
            self._detach(state, ["connect_failed", "reserved"])
        self.assertEqual([], db_rows.list_attachments(self.volume_id))

    def test_detach_in_other_state_leaves_row(self):
        states = set(AttachmentState) - {AttachmentState.HELD, AttachmentState.CONNECT_FAILED}
        for state in states:
            with self.assertRaisesRegex(exception.InvalidTransition, f"become {state.wire} since"):
                self._detach(state.value, ["connect_failed"])
        self.assertEqual(
            states, {row["state"] for row in db_rows.list_attachments(self.volume_id)}
        )
        self.assertEqual([], self.backend.driver.driver_calls)


class ForceDetachTest(backends.BackendCase):
    """An administrator deletes an attachment by force."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]

    def _force(self, attachment_id):
        return detach.force_detach(self.backend, attachment_id, self.volume_id, "root")

    def _messages(self):
        return [(row["detail_id"], row["details"]) for row in messages.page({}, Page(limit=9))]

    def test_force_detach_in_any_state_removes_row_and_keeps_others(self):
        other = db_rows.add_attachment(self.volume_id, "attached", connector=OTHER_CONNECTOR)["id"]
        for state in set(AttachmentState) - {AttachmentState.HELD}:
            attachment_id = db_rows.add_attachment(self.volume_id, state.value)["id"]
            self.assertEqual([other], [row["id"] for row in self._force(attachment_id)], state)
            self.assertEqual(
                {"user_id": "root", "attachment_id": attachment_id}, self._messages()[0][1]
            )
        self.assertEqual("attached", db_rows.get_attachment(other)["state"])

    def test_force_detach_stores_message_before_driver_call(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached")["id"]
        seen = []
        self.driver.script = lambda _call: seen.extend(self._messages())
        self._force(attachment_id)
        self.assertEqual([("102", {"user_id": "root", "attachment_id": attachment_id})], seen)

    def test_force_detach_failure_stores_message(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached")["id"]
        with self.driver.failing("revoke"), self.assertRaises(exception.DisconnectFailed):
            self._force(attachment_id)
        self.assertEqual(["022", "102"], [detail for detail, _facts in self._messages()])

    def test_force_detach_without_effect_stores_no_message(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "attached")["id"]
        self._force(attachment_id)
        with self.assertRaises(exception.AttachmentNotFound):
            self._force(attachment_id)
        self.assertEqual(1, len(self._messages()))


class FailingRevokeTest(backends.BackendCase):
    """The backend does not revoke access."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        attach.attach(self.backend, self.attachment_id, self.volume_id, CONNECTOR)

    def _detach(self):
        return detach.detach(self.backend, self.attachment_id, self.volume_id)

    def _fail(self, **how):
        failed = self.assertRaises(exception.DisconnectFailed)
        with self.driver.failing("revoke", **how), failed:
            self._detach()
        return failed.exception

    def test_detach_failure_keeps_row_and_sets_volume_error(self):
        for final in (True, False):
            error = self._fail(final=final)
            self.assertIn(self.attachment_id, str(error))
            self.assertIn("backend failed", str(error))
            row = db_rows.get_attachment(self.attachment_id)
            self.assertEqual("disconnect_failed", row["state"])
            self.assertIn("backend failed", row["error"])
            volume = db_rows.get_volume(self.volume_id)
            self.assertEqual(
                ("error", "error_detaching"), (volume["status"], volume["attach_status"])
            )

    def test_detach_retry_after_failure_succeeds(self):
        self._fail()
        self._fail()
        self.assertEqual([], self._detach())
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])

    def test_finish_detach_reports_failure_only_if_reason_has_changed(self):
        self._fail()
        before = len(events.list_of_attachment(self.attachment_id, None))
        away = exception.BackendError("It is away.", final=False)
        with mock.patch.object(notify, "attachment_event") as sent:
            for _ in range(3):
                row = db_rows.get_attachment(self.attachment_id)
                failed = self.assertRaisesRegex(exception.DisconnectFailed, "is away")
                with self.driver.raising(away, "revoke"), failed:
                    detach.finish_detach(self.backend, row)
        reported = events.list_of_attachment(self.attachment_id, None)[before:]
        self.assertEqual(["disconnect_failed"], [event["type"] for event in reported])
        sent.assert_called_once()
        detach.finish_detach(self.backend, db_rows.get_attachment(self.attachment_id))
        self.assertEqual([], db_rows.list_attachments(self.volume_id))

    def test_detach_failure_does_not_grant_again(self):
        self._fail()
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_detach_failure_does_not_overwrite_changed_row(self):
        def script(call):
            db_rows.change_attachment(self.attachment_id, generation=9)
            raise exception.BackendError("late")

        self.driver.script = script
        with self.assertRaises(exception.DisconnectFailed):
            self._detach()
        row = db_rows.get_attachment(self.attachment_id)
        self.assertEqual(("disconnecting", 9), (row["state"], row["generation"]))

    def test_detach_of_row_taken_over_does_not_remove_it(self):
        self.driver.script = lambda _call: db_rows.change_attachment(
            self.attachment_id, generation=9
        )
        with self.assertRaises(exception.InvalidTransition):
            self._detach()
        self.assertEqual("disconnecting", db_rows.get_attachment(self.attachment_id)["state"])

    def test_detach_with_removal_not_stored_can_be_repeated(self):
        silent = exception.Unavailable(reason="The database does not answer.")
        ending = mock.patch.object(attachment_store, "finish_disconnect", side_effect=silent)
        with ending, self.assertRaises(exception.Unavailable):
            self._detach()
        self.assertEqual([], self._detach())


class UndoConnectTest(backends.BackendCase):
    def test_undo_connect_of_reported_device_keeps_access(self):
        """The database was restored from a backup that is older than the attach."""
        volume_id = db_rows.add_volume()["id"]
        row = db_rows.add_attachment(volume_id, "connect_unknown", agent="compute-1")
        row = db_rows.get_attachment(row["id"])
        device = {"attachment_id": row["id"], "volume_id": volume_id, "size_bytes": 1}
        fake_agent.report_agent("compute-1", devices=[{**device, "path": "/dev/sdb"}])
        with self.assertRaisesRegex(exception.Conflict, "compute-1 .*/dev/sdb"):
            detach.undo_connect(self.backend, row)
        self.assertEqual(([], row), (self.driver.methods, db_rows.get_attachment(row["id"])))
        fake_agent.report_agent("compute-1", devices=[{**device, "path": None}])
        detach.undo_connect(self.backend, row)
        self.assertEqual(["revoke"], self.driver.methods)
        self.assertEqual("connect_failed", db_rows.get_attachment(row["id"])["state"])

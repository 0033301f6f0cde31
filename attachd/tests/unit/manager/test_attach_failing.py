# SPDX-License-Identifier: Apache-2.0
"""Connects that fail, or lose their row; part of manager/attach.py."""

import tempfile
from unittest import mock

from attachd import exception
from attachd.db.attachments import attachment_store
from attachd.db.cluster import members
from attachd.manager import attach, detach
from attachd.manager import backends as manager_backends
from attachd.states import Event
from attachd.tests.fixtures import backends, conf_fixture, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR


class _AttachCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]
        self.attachment_id = db_rows.add_attachment(self.volume_id)["id"]

    def _attach(self):
        return attach.attach_exclusive(self.backend, self.attachment_id, self.volume_id, CONNECTOR)

    def _state(self):
        volume = db_rows.get_volume(self.volume_id)
        return (
            db_rows.get_attachment(self.attachment_id)["state"],
            volume["status"],
            volume["attach_status"],
        )


class FailingGrantTest(_AttachCase):
    """The backend does not grant access."""

    def _failure(self):
        with self.assertRaises(exception.ConnectFailed) as failed:
            self._attach()
        return failed.exception

    def test_attach_final_grant_failure_reverts_nothing_and_frees_volume(self):
        with self.driver.failing("grant", final=True):
            error = self._failure()
        self.assertIn("backend failed", str(error))
        self.assertIn(self.attachment_id, str(error))
        self.assertEqual(("connect_failed", "available", "detached"), self._state())
        self.assertEqual(["grant"], self.driver.methods)

    def test_attach_while_backend_is_away_raises_unavailable_with_remedy(self):
        away = exception.BackendUnreachable("tgtd does not answer.")
        remedy = f"{self.attachment_id}.*tgtd does not answer.*Update it to try again"
        with (
            self.driver.raising(away, "grant"),
            self.assertRaisesRegex(exception.BackendUnavailable, remedy),
        ):
            self._attach()
        self.assertEqual(("connect_failed", "available", "detached"), self._state())

    def test_attach_doubtful_grant_failure_revokes_and_frees_volume(self):
        with self.driver.failing("grant"), self.assertRaises(exception.ConnectFailed):
            self._attach()
        self.assertEqual(("connect_failed", "available", "detached"), self._state())
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_attach_final_failure_of_retry_revokes_first_grant(self):
        with self.driver.failing("grant", "revoke"):
            self._failure()
        self.assertEqual(("connect_unknown", "error", "error_attaching"), self._state())
        with self.driver.failing("grant", final=True):
            self._failure()
        self.assertEqual(("connect_failed", "available", "detached"), self._state())
        self.assertEqual(["grant", "revoke", "grant", "revoke"], self.driver.methods)

    def test_attach_unforeseen_driver_error_is_doubtful(self):
        with self.driver.raising(ZeroDivisionError("bug"), "grant"):
            self.assertIn("ZeroDivisionError", str(self._failure()))
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_attach_failure_with_failed_revoke_sets_volume_error(self):
        with self.driver.failing("grant", "revoke"), self.assertRaises(exception.ConnectFailed):
            self._attach()
        self.assertEqual(("connect_unknown", "error", "error_attaching"), self._state())

    def test_attach_failure_stores_reason_and_clears_owner(self):
        with self.driver.failing("grant"), self.assertRaises(exception.ConnectFailed):
            self._attach()
        row = db_rows.get_attachment(self.attachment_id)
        self.assertEqual("Backend error: The backend failed.", row["error"])
        self.assertEqual((None, None), (row["connection_info"], row["attached_at"]))
        self.assertIsNone(db_rows.get_volume(self.volume_id)["lease_holder"])
        self.assertEqual(CONNECTOR, row["connector"])

    def test_attach_retry_after_failure_succeeds(self):
        for methods in (("grant",), ("grant", "revoke"), ("grant", "revoke")):
            with self.driver.failing(*methods), self.assertRaises(exception.ConnectFailed):
                self._attach()
        self.assertEqual("rw", self._attach()["mode"])
        self.assertEqual(("connected", "attaching", "attaching"), self._state())
        self.assertEqual({self.attachment_id}, self.driver.granted())
        self.assertIsNone(db_rows.get_attachment(self.attachment_id)["error"])
        calls = self.driver.driver_calls
        secrets = [call.export.secret for call in calls if call.method == "grant"]
        self.assertNotEqual(*secrets[:2])
        self.assertEqual(1, len(set(secrets[1:])), "a repeated call in doubt needs the same")

    def test_attach_failure_revoke_spares_other_hosts(self):
        db_rows.change_volume(self.volume_id, multiattach=True)
        other = db_rows.add_attachment(self.volume_id, "attached")
        for state in ("reserved", "connect_failed", "disconnecting"):
            db_rows.add_attachment(self.volume_id, state)
        with self.driver.failing("grant"), self.assertRaises(exception.ConnectFailed):
            self._attach()
        spared = [item.attachment_id for item in self.driver.driver_calls[-1].others]
        self.assertEqual([other["id"]], spared)
        self.assertEqual(("connect_failed", "in-use", "attached"), self._state())


class LostRowTest(_AttachCase):
    """Another caller changes the row while the driver works."""

    def setUp(self):
        super().setUp()
        self.backend.membership.heartbeat()

    def _meanwhile(self, change):
        """Make a change once, during the driver's grant."""

        def script(call):
            if call.method == "grant":
                self.driver.script = None
                change()

        self.driver.script = script

    def test_attach_detached_meanwhile_is_revoked(self):
        def detached():
            values = {"generation": 2}
            attachment_store.transition(
                self.attachment_id, self.volume_id, Event.DISCONNECT, values
            )

        self._meanwhile(detached)
        with self.assertRaises(exception.InvalidTransition) as lost:
            self._attach()
        self.assertIn(self.attachment_id, str(lost.exception))
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual(("disconnecting", "detaching", "detaching"), self._state())

    def test_attach_deleted_meanwhile_is_revoked(self):
        def gone():
            attachment_store.transition(self.attachment_id, self.volume_id, Event.DISCONNECT)
            attachment_store.transition(self.attachment_id, self.volume_id, Event.REVOKED)

        self._meanwhile(gone)
        with self.assertRaises(exception.AttachdError):
            self._attach()
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], db_rows.list_attachments(self.volume_id))

    def test_attach_granted_by_second_manager_stays_granted(self):
        # The first manager was expired, and the repeated call went to the second one.
        self._meanwhile(self._attach_elsewhere)
        with self.assertRaises(exception.TakenOver):
            self._attach()
        self.assertEqual({self.attachment_id}, self.driver.granted())
        self.assertEqual("connected", self._state()[0])

    def test_attach_result_of_superseded_generation_is_not_stored(self):
        self._meanwhile(lambda: db_rows.change_attachment(self.attachment_id, generation=2))
        with self.assertRaises(exception.InvalidTransition):
            self._attach()
        self.assertEqual("connecting", self._state()[0])
        self.assertIsNone(db_rows.get_attachment(self.attachment_id)["connection_info"])
        self.assertEqual({self.attachment_id}, self.driver.granted())

    def _attach_elsewhere(self):
        members.expire(self.backend.membership.id)
        elsewhere = backends.FakeBackend(backends.NAME, self.driver)
        elsewhere.membership.heartbeat()
        elsewhere.setup()
        # Another machine has other lock files.
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(manager_backends, "_locks_dir", lambda: folder),
        ):
            attach.attach_exclusive(elsewhere, self.attachment_id, self.volume_id, CONNECTOR)

    def test_attach_elsewhere_while_lease_held_is_refused(self):
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        refused = []

        def busy():
            with mock.patch.object(members, "expire"):
                try:
                    self._attach_elsewhere()
                except exception.Unavailable as error:
                    refused.append(str(error))

        self._meanwhile(busy)
        self._attach()
        self.assertEqual(("connected", ["grant"]), (self._state()[0], self.driver.methods))
        self.assertIn("busy", refused[0])

    def test_attach_failure_after_takeover_does_not_overwrite_row(self):
        def taken_over():
            self._attach_elsewhere()
            raise exception.BackendError("late")

        self._meanwhile(taken_over)
        with self.assertRaises(exception.AttachdError):
            self._attach()
        self.assertEqual("connected", self._state()[0])
        self.assertEqual({self.attachment_id}, self.driver.granted())


class LostDatabaseTest(_AttachCase):
    """The database fails while the result is stored."""

    def _losing(self, real=lambda *_: None):
        """Lose the connection at the commit of GRANTED: after it was made, or before."""

        def move_alone(*args):
            real(*args)
            raise exception.Unavailable(reason="The connection was lost.")

        return mock.patch.object(attachment_store, "transition_without_volume", move_alone)

    def _check_repeatable(self):
        self._attach()
        self.assertEqual("connected", self._state()[0])
        self.assertEqual({self.attachment_id}, self.driver.granted())
        detach.detach(self.backend, self.attachment_id, self.volume_id)
        self.assertEqual(set(), self.driver.granted())

    def test_attach_with_result_stored_before_database_loss_keeps_grant(self):
        with (
            self._losing(attachment_store.transition_without_volume),
            self.assertRaises(exception.Unavailable),
        ):
            self._attach()
        self.assertEqual("connected", self._state()[0])
        self.assertEqual({self.attachment_id}, self.driver.granted())
        self._check_repeatable()

    def test_attach_with_result_lost_in_database_loss_is_revoked(self):
        with self._losing(), self.assertRaises(exception.Unavailable):
            self._attach()
        self.assertEqual(("connect_failed", "available", "detached"), self._state())
        self.assertEqual(set(), self.driver.granted())
        self._check_repeatable()

    def test_attach_with_database_down_keeps_grant_and_connecting_row(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(attachment_store, "get", side_effect=gone), self._losing():
            real = attachment_store.transition

            def transition(attachment_id, volume_id, event, *args, **kwargs):
                if event is not Event.CONNECT:
                    raise gone
                return real(attachment_id, volume_id, event, *args, **kwargs)

            with (
                mock.patch.object(attachment_store, "transition", transition),
                self.assertRaises(exception.Unavailable),
            ):
                self._attach()
        self.assertEqual("connecting", self._state()[0])
        self.assertEqual({self.attachment_id}, self.driver.granted())
        self._check_repeatable()

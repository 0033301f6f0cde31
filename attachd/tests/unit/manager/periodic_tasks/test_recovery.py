# SPDX-License-Identifier: Apache-2.0
"""Recovery of rows after a manager was killed at each step, and the loop."""

import contextlib
import datetime
import functools
import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.db import models
from attachd.db.agents import agent_transitions
from attachd.db.attachments import attachment_store
from attachd.db.cluster import members, volume_leases
from attachd.db.volumes import volume_store
from attachd.images.glance import ImageApi
from attachd.manager import attach, detach, notify, volumes
from attachd.manager.periodic_tasks import recovery
from attachd.manager.periodic_tasks.ensure_exports import EnsureExportsTask
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.periodics import MIN_BACKOFF, Backoff
from attachd.states import Event
from attachd.tests.fixtures import backends, crash_injection, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR
from attachd.tests.wait import TIMEOUT, wait_until


class KilledTest(backends.BackendCase):
    """A manager is killed at each step; the next one finishes its work."""

    def test_recover_after_kill_finishes_connect_or_leaves_reservation(self):
        for where in crash_injection.crash_at_each_step(self, self.backend, self._prepare_attach):
            with self.subTest(where):
                row = db_rows.get_attachment(self.attachment_id)
                never_started = where == "before step 1"
                self.assertEqual("reserved" if never_started else "connected", row["state"])
                self.assertEqual(not never_started, self.attachment_id in self.driver.granted())
                if not never_started:
                    self.assertEqual(
                        self.attachment_id, row["connection_info"]["data"]["attachment_id"]
                    )
                    self.assertIsNone(db_rows.get_volume(self.volume_id)["lease_holder"])

    def _prepare_attach(self):
        self.volume_id = db_rows.add_volume()["id"]
        self.attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        return functools.partial(
            attach.attach_exclusive, self.backend, self.attachment_id, self.volume_id, CONNECTOR
        )

    def test_recover_after_kill_of_failing_connect_stores_failure(self):
        def prepare():
            attach = self._prepare_attach()

            def work():
                with self.driver.failing("grant"), contextlib.suppress(exception.ConnectFailed):
                    attach()

            return work

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                state = db_rows.get_attachment(self.attachment_id)["state"]
                rest = {"connect_failed", "connected"}
                self.assertIn(state, {"reserved"} if where == "before step 1" else rest)
                self.assertEqual(state == "connected", self.attachment_id in self.driver.granted())

    def test_recover_after_kill_finishes_disconnect_or_leaves_connection(self):
        def prepare():
            self._prepare_attach()()
            return functools.partial(
                detach.detach, self.backend, self.attachment_id, self.volume_id
            )

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                never_started = where == "before step 1"
                left = [row["state"] for row in db_rows.list_attachments(self.volume_id)]
                self.assertEqual(["connected"] if never_started else [], left)
                self.assertEqual(never_started, self.attachment_id in self.driver.granted())
                status = "attaching" if never_started else "available"
                self.assertEqual(status, db_rows.get_volume(self.volume_id)["status"])

    def test_recover_after_kill_creates_volume(self):
        for where in crash_injection.crash_at_each_step(self, self.backend, self._prepare_create):
            with self.subTest(where):
                self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])
                self.assertIn(self.volume_id, self.driver.sizes())

    def _prepare_create(self):
        self.volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]
        return functools.partial(volumes.create, self.backend, self.volume_id)

    def test_recover_after_kill_copies_volume(self):
        def prepare():
            source = db_rows.add_volume()["id"]
            row = db_rows.add_volume("creating", owner=backends.HOST, source_volid=source)
            self.volume_id = row["id"]
            return functools.partial(volumes.create, self.backend, self.volume_id)

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                wait_until(
                    lambda: db_rows.get_volume(self.volume_id)["status"] == "available",
                    interval=0.001,
                )
                self.assertIn(self.volume_id, self.driver.sizes())

    def test_recover_after_kill_deletes_volume(self):
        def prepare():
            self._prepare_create()()
            volume_store.transition(self.volume_id, Event.DELETE)
            return functools.partial(volumes.delete, self.backend, self.volume_id)

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                self.assertNotIn(self.volume_id, [row["id"] for row in db_rows.list_volumes()])
                self.assertNotIn(self.volume_id, self.driver.sizes())

    def test_recover_after_kill_extends_volume(self):
        def prepare():
            self._prepare_create()()
            volume_store.transition(self.volume_id, Event.EXTEND, {"new_size_gib": 3})
            return functools.partial(volumes.extend, self.backend, self.volume_id)

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                row = db_rows.get_volume(self.volume_id)
                self.assertEqual(("available", 3), (row["status"], row["size_gib"]))
                self.assertEqual(3, self.driver.sizes()[self.volume_id])


class RecoverAllTest(backends.BackendCase):
    """Selection of rows, and failures of recovery."""

    def test_recover_all_touches_only_rows_of_backend(self):
        for host in ("here@fake2#pool", "there@fake#pool", "here@fak", None):
            volume_id = db_rows.add_volume(host=host)["id"]
            db_rows.add_attachment(volume_id, "connecting")
            db_rows.add_volume("creating", host=host, owner=(host or "").partition("#")[0] or None)
        self.assertEqual(0, recovery.recover_all(self.backend, Backoff()))
        self.assertEqual([], self.driver.driver_calls)

    def test_recover_all_includes_volume_without_pool(self):
        volume_id = db_rows.add_volume(host=backends.HOST)["id"]
        attachment_id = db_rows.add_attachment(volume_id, "connecting")["id"]
        recovery.recover_all(self.backend, Backoff())
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_recover_all_finishes_attachments_before_volumes(self):
        db_rows.add_volume("deleting", owner=backends.HOST)
        db_rows.add_attachment(db_rows.add_volume()["id"], "disconnecting")
        recovery.recover_all(self.backend, Backoff())
        self.assertEqual(["revoke", "delete"], self.driver.methods[:2])

    def test_recover_all_skips_reset_rows(self):
        for state in ("creating", "deleting", "extending"):
            db_rows.add_volume(state, owner=None)
        recovery.recover_all(self.backend, Backoff())
        self.assertEqual([], self.driver.driver_calls)

    def test_recover_all_skips_rows_at_rest(self):
        volume_id = db_rows.add_volume(multiattach=True)["id"]
        for state in ("reserved", "connected", "attached", "connect_failed"):
            db_rows.add_attachment(volume_id, state)
        before = db_rows.list_attachments()
        recovery.recover_all(self.backend, Backoff())
        self.assertEqual(before, db_rows.list_attachments())

    def test_recover_all_continues_after_failure_of_one_row(self):
        def script(call):
            if call.attachment == failing:
                raise exception.BackendError("broken", final=True)

        self.driver.script = script
        failing, *others = (
            db_rows.add_attachment(db_rows.add_volume()["id"], "connecting")["id"]
            for _ in range(3)
        )
        self.assertEqual(1, recovery.recover_all(self.backend, Backoff()))
        # The call of the dead manager may have had effect, and cannot be reverted either.
        self.assertEqual("connect_unknown", db_rows.get_attachment(failing)["state"])
        self.assertEqual(
            {"connected"}, {db_rows.get_attachment(other)["state"] for other in others}
        )

    def test_recover_all_finishes_connect_of_volume_in_error(self):
        volume_id = db_rows.add_volume(multiattach=True)["id"]
        attachment_id = db_rows.add_attachment(volume_id, "connecting")["id"]
        db_rows.add_attachment(volume_id, "connect_unknown")
        db_rows.change_volume(volume_id, state="error", status="error")
        with self.driver.failing("revoke"):
            self.assertEqual(1, recovery.recover_all(self.backend, Backoff()))
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_recover_all_skips_connect_finished_meanwhile(self):
        volume_id = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume_id, "connecting", generation=1)["id"]
        (read,) = attachment_store.list_recoverable(backends.HOST, "us")
        for values in ({"state": "connect_failed"}, {"generation": 2}):
            db_rows.change_attachment(
                attachment_id, **{"state": "connecting", "generation": 1} | values
            )
            with mock.patch.object(attachment_store, "list_recoverable", return_value=[read]):
                self.assertEqual(0, recovery.recover_all(self.backend, Backoff()))
        self.assertEqual([], self.driver.driver_calls)

    def test_recover_all_waits_for_running_operation(self):
        volume_id = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume_id, "connecting")["id"]
        with self.backend.lock(volume_id):
            recovering = threading.Thread(
                target=recovery.recover_all, args=(self.backend, Backoff()), daemon=True
            )
            recovering.start()
            recovering.join(0.1)  # it waits longer than that, however slow it is
            self.assertTrue(recovering.is_alive())
            self.assertEqual([], self.driver.driver_calls)
        recovering.join(TIMEOUT)
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_recover_all_with_result_not_stored_leaves_row(self):
        db_rows.add_volume("creating", owner=backends.HOST)
        db_rows.add_attachment(db_rows.add_volume()["id"], "connecting")
        gone = exception.Unavailable(reason="The database does not answer.")
        with (
            mock.patch.object(attachment_store, "transition", side_effect=gone),
            mock.patch.object(volume_store, "transition", side_effect=ZeroDivisionError),
        ):
            self.assertEqual(2, recovery.recover_all(self.backend, Backoff()))
        self.assertEqual(0, recovery.recover_all(self.backend, Backoff()))


class UncertainTest(backends.BackendCase):
    """Operations that have failed with an unknown result, while the backend was away."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]

    def _failed(self, method, work):
        """Let a method of the driver fail after it has done its work, and no undo work either."""
        with (
            self.driver.failing("revoke"),
            self.driver.failing_late(method),
            contextlib.suppress(exception.AttachdError),
        ):
            work()

    def _connect_unknown(self):
        attachment_id = db_rows.add_attachment(self.volume_id, asked_mode="ro")["id"]
        work = functools.partial(
            attach.attach, self.backend, attachment_id, self.volume_id, CONNECTOR
        )
        self._failed("grant", work)
        self.assertEqual("connect_unknown", db_rows.get_attachment(attachment_id)["state"])
        return attachment_id

    def _disconnect_failed(self):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        attach.attach(self.backend, attachment_id, self.volume_id, CONNECTOR)
        work = functools.partial(detach.detach, self.backend, attachment_id, self.volume_id)
        self._failed("revoke", work)
        self.assertEqual("error", db_rows.get_volume(self.volume_id)["status"])
        return attachment_id

    def _extend_lost(self):
        volume_id = db_rows.add_volume("creating", owner=backends.HOST)["id"]
        volumes.create(self.backend, volume_id)
        volume_store.transition(volume_id, Event.EXTEND, {"new_size_gib": 3})
        return volume_id

    def _recover(self):
        return recovery.recover_all(self.backend, Backoff())

    def test_recover_revokes_what_uncertain_connect_has_granted(self):
        other = db_rows.add_attachment(self.volume_id, "attached")["id"]
        attachment_id = self._connect_unknown()
        self.assertIn(attachment_id, self.driver.granted())
        self.driver.driver_calls.clear()
        self.assertEqual(0, self._recover())
        (revoked,) = self.driver.driver_calls
        self.assertEqual(
            ("revoke", attachment_id, [other]),
            (revoked.method, revoked.export.attachment_id,
             [item.attachment_id for item in revoked.others]),
        )  # fmt: skip
        row = db_rows.get_attachment(attachment_id)
        self.assertEqual(("connect_failed", "ro"), (row["state"], row["mode"]))
        self.assertIsNotNone(row["error"])
        volume = db_rows.get_volume(self.volume_id)
        self.assertEqual(("in-use", None), (volume["status"], volume["lease_holder"]))

    def test_recover_keeps_uncertain_connect_that_client_has_repeated(self):
        attachment_id = self._connect_unknown()
        (read,) = attachment_store.list_recoverable(backends.HOST, "us")
        attach.attach(self.backend, attachment_id, self.volume_id, CONNECTOR)
        with mock.patch.object(attachment_store, "list_recoverable", return_value=[read]):
            self.assertEqual(0, self._recover())
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])
        self.assertIn(attachment_id, self.driver.granted())

    def test_recover_keeps_attachment_made_anew_under_same_id(self):
        attachment_id = self._disconnect_failed()
        (read,) = attachment_store.list_recoverable(backends.HOST, "us")
        detach.detach(self.backend, attachment_id, self.volume_id)
        db_rows.add_attachment(self.volume_id, "attached", id=attachment_id)
        with mock.patch.object(attachment_store, "list_recoverable", return_value=[read]):
            self.assertEqual(0, self._recover())
        self.assertEqual("attached", db_rows.get_attachment(attachment_id)["state"])

    def test_recover_finishes_failed_disconnect(self):
        attachment_id = self._disconnect_failed()
        self.assertEqual(0, self._recover())
        self.assertEqual([], db_rows.list_attachments(self.volume_id))
        self.assertNotIn(attachment_id, self.driver.granted())
        self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])

    def test_recover_with_failing_backend_tries_again_with_backoff(self):
        ids = [self._disconnect_failed()]
        self.volume_id = db_rows.add_volume()["id"]
        ids.append(self._connect_unknown())
        backoff = Backoff()
        with (
            self.driver.failing("revoke"),
            mock.patch.object(notify, "attachment_message") as message,
        ):
            self.assertEqual(2, recovery.recover_all(self.backend, backoff))
            self.driver.driver_calls.clear()
            self.assertEqual(2, recovery.recover_all(self.backend, backoff))
        self.assertEqual([], self.driver.driver_calls)
        self.assertEqual(
            {"connect_unknown", "disconnect_failed"},
            {db_rows.get_attachment(item)["state"] for item in ids},
        )
        message.assert_not_called()  # The user has one already.

    def test_recover_after_kill_undoes_uncertain_connect(self):
        def prepare():
            self.attachment_id = self._connect_unknown()
            return self._recover

        for where in crash_injection.crash_at_each_step(self, self.backend, prepare):
            with self.subTest(where):
                row = db_rows.get_attachment(self.attachment_id)
                self.assertEqual("connect_failed", row["state"])
                self.assertNotIn(self.attachment_id, self.driver.granted())

    def test_recover_finishes_extend_of_volume_that_has_grown(self):
        volume_id = self._extend_lost()
        self._failed("extend", lambda: volumes.extend(self.backend, volume_id))
        self.assertEqual("error_extending", db_rows.get_volume(volume_id)["status"])
        self.driver.driver_calls.clear()
        self.assertEqual(0, self._recover())
        self.assertEqual(["extend"], self.driver.methods, "exports may show the former size")
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("available", 3, None, None), (row["status"], row["size_gib"],
                                                        row["owner"], row["error"]))  # fmt: skip

    def test_recover_keeps_size_of_volume_that_has_not_grown(self):
        volume_id = self._extend_lost()
        with self.driver.failing("extend"):
            volumes.extend(self.backend, volume_id)
            self.assertEqual(0, self._recover())
        row = db_rows.get_volume(volume_id)
        self.assertEqual(("available", 1, None), (row["status"], row["size_gib"], row["owner"]))
        self.assertIsNone(row["new_size_gib"])

    def test_recover_leaves_volume_of_unknown_size(self):
        volume_id = self._extend_lost()
        with self.driver.failing("extend"):
            volumes.extend(self.backend, volume_id)
        self.driver.clear()
        self.assertEqual(1, self._recover())
        self.assertEqual("error_extending", db_rows.get_volume(volume_id)["status"])
        volume_store.reset(volume_id, "available", None)
        self.assertEqual(0, self._recover())

    def test_recover_leaves_refused_extend_to_administrator(self):
        volume_id = self._extend_lost()
        with self.driver.failing("extend", final=True):
            volumes.extend(self.backend, volume_id)
        self.assertEqual(0, self._recover())
        self.assertEqual("error_extending", db_rows.get_volume(volume_id)["status"])


class WithdrawingTest(unittest.TestCase):
    """An agent has to remove a device: no manager does so."""

    def test_recover_leaves_withdrawing_attachment_to_agent(self):
        backend = backends.use(self)
        long_ago = models.now() - datetime.timedelta(days=9)
        attachment_id = db_rows.add_attachment(
            db_rows.add_volume()["id"],
            "withdrawing",
            agent="node-1",
            created_at=long_ago,
            updated_at=long_ago,
        )["id"]
        before = db_rows.get_attachment(attachment_id)
        for work_off in (recovery.recover_all, recovery.recover_stale):
            self.assertEqual(0, work_off(backend, Backoff()))
        self.assertEqual(before, db_rows.get_attachment(attachment_id))
        self.assertEqual([], backend.driver.methods)
        agent_transitions.release(attachment_id, "node-1", 0)
        recovery.recover_all(backend, Backoff())
        self.assertEqual(([], ["revoke"]), (db_rows.list_attachments(), backend.driver.methods))


class RecoverStaleTest(backends.BackendCase):
    """A running manager finds lost messages by the age of rows."""

    def setUp(self):
        super().setUp()
        # A new row stays new, however long a test takes.
        self.enterContext(mock.patch.object(recovery, "GRACE_PERIOD", 3600.0))
        self.long_ago = models.now() - datetime.timedelta(seconds=recovery.GRACE_PERIOD + 1)

    def test_recover_stale_processes_row_of_lost_message(self):
        waiting = db_rows.add_volume("creating", owner=backends.HOST, created_at=self.long_ago)
        volume_id = db_rows.add_volume()["id"]
        attachment = db_rows.add_attachment(volume_id, "disconnecting", updated_at=self.long_ago)
        recovery.recover_stale(self.backend, Backoff())
        self.assertEqual("available", db_rows.get_volume(waiting["id"])["status"])
        self.assertEqual([], db_rows.list_attachments(volume_id))
        self.assertIn(
            attachment["id"],
            [
                driver_call.export.attachment_id
                for driver_call in self.driver.driver_calls
                if driver_call.export
            ],
        )

    def test_recover_stale_skips_recent_row(self):
        db_rows.add_volume("creating", owner=backends.HOST)
        long_known = {"created_at": self.long_ago, "updated_at": models.now()}
        db_rows.add_attachment(db_rows.add_volume()["id"], "connecting", **long_known)
        recovery.recover_stale(self.backend, Backoff())
        self.assertEqual([], self.driver.driver_calls)

    def test_recover_stale_does_not_wait_for_running_operation(self):
        volume_id = db_rows.add_volume("creating", owner=backends.HOST, created_at=self.long_ago)[
            "id"
        ]
        members.join(self.backend.membership.id, "ours")
        with self.backend.lock(volume_id):
            thread = threading.Thread(
                target=recovery.recover_stale, args=(self.backend, Backoff()), daemon=True
            )
            thread.start()
            thread.join(TIMEOUT)
            self.assertFalse(thread.is_alive())
            self.assertEqual([], self.driver.driver_calls)

    def test_recover_stale_finishes_row_of_dead_process_at_once(self):
        volume_id = db_rows.add_volume(lease_holder="dead", lease_generation=4)["id"]
        attachment_id = db_rows.add_attachment(volume_id, "connecting")["id"]
        recovery.recover_stale(self.backend, Backoff())
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])
        row = db_rows.get_volume(volume_id)
        self.assertEqual((None, 5), (row["lease_holder"], row["lease_generation"]))

    def test_recover_stale_skips_row_of_other_living_process(self):
        members.join("other", "elsewhere:1")
        volume_id = db_rows.add_volume(lease_holder="other", lease_generation=4)["id"]
        db_rows.add_attachment(volume_id, "connecting", updated_at=self.long_ago)
        before = db_rows.get_volume(volume_id)
        for work in (recovery.recover_stale, recovery.recover_all):
            self.assertEqual(0, work(self.backend, Backoff()))
        self.assertEqual([], self.driver.driver_calls)
        self.assertEqual(before, db_rows.get_volume(volume_id))
        members.expire("other")
        recovery.recover_stale(self.backend, Backoff())
        self.assertEqual(["grant"], self.driver.methods)

    def test_recover_stale_retries_failure_after_backoff(self):
        db_rows.add_volume("creating", owner=backends.HOST, created_at=self.long_ago)
        backoff = Backoff()
        clock = self.enterContext(mock.patch("attachd.periodics.time"))
        clock.monotonic.return_value = 1000.0
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(volume_store, "transition", side_effect=gone):
            self.assertEqual(1, recovery.recover_stale(self.backend, backoff))
        self.driver.driver_calls.clear()
        self.assertEqual(1, recovery.recover_stale(self.backend, backoff))
        self.assertEqual([], self.driver.driver_calls)
        clock.monotonic.return_value += MIN_BACKOFF
        self.assertEqual(0, recovery.recover_stale(self.backend, backoff))
        self.assertEqual(["create"], self.driver.methods)

    def test_recover_stale_drops_failure_of_missing_row(self):
        gone = db_rows.add_volume("creating", owner=backends.HOST, created_at=self.long_ago)["id"]
        backoff = Backoff()
        with mock.patch.object(volume_store, "transition", side_effect=ZeroDivisionError):
            recovery.recover_stale(self.backend, backoff)
        self.assertTrue(backoff.has_failed(gone))
        db_rows.remove_all()
        recovery.recover_stale(self.backend, backoff)
        self.assertFalse(backoff.has_failed(gone))

    def test_recover_stale_releases_orphaned_lease(self):
        ours = self.backend.membership.id
        left = [db_rows.add_volume(lease_holder=item)["id"] for item in (ours, "dead")]
        busy = db_rows.add_volume(lease_holder=ours)["id"]
        with self.backend.volume_lease(busy):
            recovery.recover_stale(self.backend, Backoff())
            self.assertEqual(ours, db_rows.get_volume(busy)["lease_holder"])
        self.assertEqual([None, None], [db_rows.get_volume(item)["lease_holder"] for item in left])

    def test_recover_stale_with_missing_volume_releases_other_leases(self):
        left = db_rows.add_volume(lease_holder="dead")["id"]
        with mock.patch.object(volume_leases, "list_orphaned", return_value=["gone", left]):
            recovery.recover_stale(self.backend, Backoff())
        self.assertIsNone(db_rows.get_volume(left)["lease_holder"])


class RecoveryLoopTest(backends.BackendCase):
    """Consecutive runs of the loop."""

    def setUp(self):
        super().setUp()
        self.loop = RecoveryLoop(self.backend)

    def test_recovery_loop_recovers_all_again_after_backend_was_down(self):
        with mock.patch.object(recovery, "recover_all", return_value=0) as resume:
            self.loop.run_once()
            self.loop.run_once()
            self.assertEqual(1, resume.call_count)
            self.backend.error = "down"
            self.loop.run_once()
            self.assertEqual(1, resume.call_count, "nothing can be done while it is down")
            self.backend.error = None
            self.loop.run_once()
            self.assertEqual(2, resume.call_count)

    def test_recovery_loop_first_run_recovers_rows_of_dead_manager(self):
        attachment_id = db_rows.add_attachment(db_rows.add_volume()["id"], "connecting")["id"]
        self.loop.run_once()
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_recovery_loop_retries_failed_row_after_backoff(self):
        attachment_id = db_rows.add_attachment(db_rows.add_volume()["id"], "connecting")["id"]
        gone = exception.Unavailable(reason="The database does not answer.")
        clock = self.enterContext(mock.patch("attachd.periodics.time"))
        clock.monotonic.return_value = 1000.0
        with mock.patch.object(attachment_store, "transition", side_effect=gone):
            self.loop.run_once()
        self.loop.run_once()
        self.assertEqual("connecting", db_rows.get_attachment(attachment_id)["state"])
        clock.monotonic.return_value += MIN_BACKOFF
        self.loop.run_once()
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_recovery_loop_with_backend_down_releases_orphaned_leases(self):
        attachment_id = db_rows.add_volume(lease_holder=self.backend.membership.id)["id"]
        self.backend.error = "down"
        self.loop.run_once()
        self.assertIsNone(db_rows.get_volume(attachment_id)["lease_holder"])

    def test_recovery_loop_after_backend_was_down_retries_at_once(self):
        attachment_id = db_rows.add_attachment(db_rows.add_volume()["id"], "connecting")["id"]
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(attachment_store, "transition", side_effect=gone):
            self.loop.run_once()
        for error in ("down", None):
            self.backend.error = error
            self.loop.run_once()
        self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_recovery_loop_after_restart_of_backend_retries_at_once(self):
        volume_id, long_ago = db_rows.add_volume()["id"], models.now() - datetime.timedelta(days=1)
        values = {"created_at": long_ago, "updated_at": long_ago}
        attachment_id = db_rows.add_attachment(volume_id, "connect_unknown", **values)["id"]
        exports = EnsureExportsTask(self.backend)
        exports.run_once()
        with self.driver.failing("revoke"):
            self.loop.run_once()
        self.loop.run_once()
        self.assertEqual("connect_unknown", db_rows.get_attachment(attachment_id)["state"])
        self.driver.restart()
        exports.run_once()
        self.loop.run_once()
        self.assertEqual("connect_failed", db_rows.get_attachment(attachment_id)["state"])

    def test_recovery_loop_later_run_recovers_stale_row(self):
        self.loop.run_once()
        long_ago = models.now() - datetime.timedelta(days=1)
        attachment = db_rows.add_volume("creating", owner=backends.HOST, created_at=long_ago)
        self.loop.run_once()
        self.assertEqual("available", db_rows.get_volume(attachment["id"])["status"])

    def test_recovery_loop_after_failed_run_recovers_all(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        with (
            mock.patch.object(recovery, "recover_all", return_value=0) as resume,
            mock.patch.object(recovery, "recover_stale", side_effect=gone),
            mock.patch.object(self.loop, "_interval", lambda: 0.2),
        ):
            self.loop.start()
            wait_until(lambda: resume.call_count == 2)
            self.loop.stop()
            self.loop.join(TIMEOUT)


class FairPassTest(backends.BackendCase):
    """Passes over the rows of several projects, some of which fail slowly."""

    def setUp(self):
        super().setUp()
        self.loop = RecoveryLoop(self.backend)
        self.order = []
        self.driver.script = self.fail_slowly
        self.enterContext(mock.patch.object(recovery, "GRACE_PERIOD", -1.0))

    def add(self, project):
        """Return an attachment whose disconnect has to be finished."""
        volume_id = db_rows.add_volume(project_id=project)["id"]
        return db_rows.add_attachment(volume_id, "disconnecting", project_id=project)["id"]

    def fail_slowly(self, call):
        """Fail all calls for project "slow", each of which takes longer than a pass."""
        if call.method != "revoke":
            return
        project = db_rows.get_attachment(call.attachment)["project_id"]
        self.order.append(project)
        if project == "slow":
            self.now += recovery.PASS_TIME + 1
            raise exception.BackendError("spoilt")

    def use_clock(self):
        self.now = 1000.0
        for module in ("attachd.periodics", recovery.__name__):
            self.enterContext(mock.patch(f"{module}.time")).monotonic = lambda: self.now

    def test_row_that_appears_in_a_slow_pass_does_not_wait_for_its_end(self):
        self.use_clock()
        slow = [self.add("slow") for _ in range(5)]
        self.loop.run_once()
        self.assertEqual((["slow"], True), (self.order, self.loop._wake.is_set()))
        self.add("other")
        self.loop.run_once()
        self.assertEqual(["slow", "other", "slow"], self.order)
        for _ in range(5):
            self.loop.run_once()
        self.assertTrue(all(map(self.loop._backoff.has_failed, slow)))

    def test_projects_have_turns_and_failed_rows_are_last(self):
        self.use_clock()
        self.add("slow")
        self.loop.run_once()
        self.now += MIN_BACKOFF
        for project in ("a", "a", "a", "b"):
            self.add(project)
        self.loop.run_once()
        self.assertEqual(["slow", "a", "b", "a", "a", "slow"], self.order)

    def test_background_task_that_is_left_to_recovery_has_a_growing_pause(self):
        self.use_clock()
        attempts, go_on = [], threading.Semaphore(0)

        def be_away():
            attempts.append(self.now)
            go_on.acquire(timeout=TIMEOUT)
            raise exception.ImageServiceUnavailable(reason="away")

        self.enterContext(mock.patch.object(ImageApi, "of_service", be_away))
        values = {"image_id": models.new_id(), "provider": {"lun": 1}}
        db_rows.add_volume("downloading", owner=backends.HOST, **values)
        tasks = self.backend.background_tasks
        for number in range(1, 4):
            self.loop.run_once()
            wait_until(lambda: len(attempts) == number)  # noqa: B023  it ends in this turn
            self.now += 100  # The pause begins at the end of the task.
            self.loop.run_once()
            go_on.release()
            wait_until(lambda: not tasks.is_busy)
            self.now += MIN_BACKOFF * 2 ** (number - 1) - 1
            self.loop.run_once()
            self.assertFalse(tasks.is_busy)
            self.now += 1
        self.assertEqual(3, len(attempts))

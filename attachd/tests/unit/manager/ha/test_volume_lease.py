# SPDX-License-Identifier: Apache-2.0
"""Leases of volumes among several processes."""

import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db.cluster import leases as db
from attachd.db.cluster import members
from attachd.drivers import base
from attachd.manager.ha import membership, volume_lease, volume_lock
from attachd.manager.ha.membership import Membership
from attachd.tests.fixtures import backends, conf_fixture, db_rows
from attachd.tests.wait import TIMEOUT


class _LeaseCase(unittest.TestCase):
    """One volume, our process, and another one on another machine."""

    def setUp(self):
        super().setUp()
        backends.use(self)
        # No thread sends heartbeats here: the first one has to last.
        conf_fixture.override(self, "member_timeout", 3600.0, group="manager")
        self.ours = Membership()
        self.addCleanup(self.ours.stop)
        self.ours.heartbeat()
        members.join("other", "elsewhere:7")
        self.volume_id = db_rows.add_volume()["id"]
        self.path = f"{CONF.state_path}/one"

    def lease(self):
        return volume_lease.acquire(self.ours, self.volume_id, self.path)

    def stored(self):
        row = db_rows.get_volume(self.volume_id)
        return row["lease_holder"], row["lease_generation"]

    def give_to_other(self):
        db_rows.change_volume(self.volume_id, lease_holder="other")


class VolumeLeaseTest(_LeaseCase):
    """Processes that are alive or dead."""

    def test_lease_is_released_at_end(self):
        with self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            self.assertEqual((self.ours.id, 1), self.stored())
        self.assertEqual((None, 1), self.stored())

    def test_lease_is_released_after_exception(self):
        with self.assertRaises(ZeroDivisionError), self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            raise ZeroDivisionError
        self.assertEqual((None, 1), self.stored())

    def test_lease_released_by_work_costs_no_statement(self):
        with mock.patch.object(db, "release") as again:
            with self.lease() as lease:
                lease.run_with_lease(db.acquire_committed)
                db.confirm(lease.token, {}, ended=True)
            with self.lease():
                pass
        self.assertEqual(0, again.call_count)

    def test_lease_in_doubt_is_released(self):
        def lost(lease):
            db.acquire_committed(lease)
            lease.generation = None
            raise exception.Unavailable(reason="The connection was lost at the commit.")

        with self.assertRaises(exception.Unavailable), self.lease() as lease:
            lease.run_with_lease(lost)
        self.assertEqual((None, 1), self.stored())

    def test_lease_release_failure_does_not_hide_result(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(db, "release", side_effect=gone):
            with self.lease() as lease:
                lease.run_with_lease(db.acquire_committed)
            with self.assertRaises(ZeroDivisionError), self.lease() as lease:
                lease.run_with_lease(db.acquire_committed)
                raise ZeroDivisionError
        self.assertEqual((self.ours.id, 2), self.stored())

    def test_lease_of_living_process_is_waited_for(self):
        self.give_to_other()
        held = threading.Event()
        asked = threading.Semaphore(0)

        def take(lease):
            asked.release()
            db.acquire_committed(lease)

        def work():
            with self.lease() as lease:
                lease.run_with_lease(take)
                held.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        for _ in range(3):
            self.assertTrue(asked.acquire(timeout=TIMEOUT))
        self.assertFalse(held.is_set())
        db_rows.change_volume(self.volume_id, lease_holder=None)
        self.assertTrue(held.wait(TIMEOUT))
        thread.join(TIMEOUT)

    def test_lease_timeout_names_holder(self):
        self.give_to_other()
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        with (
            self.assertRaisesRegex(exception.Unavailable, "busy.*elsewhere:7"),
            self.lease() as lease,
        ):
            lease.run_with_lease(db.acquire_committed)
        self.assertEqual(("other", 0), self.stored())

    def test_lease_of_dead_process_is_taken_over_at_once(self):
        self.give_to_other()
        members.expire("other")
        with self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            self.assertEqual((self.ours.id, 1), self.stored())

    def test_run_with_lease_again_keeps_generation(self):
        with self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            lease.run_with_lease(db.acquire_committed)
            self.assertEqual((self.ours.id, 1), self.stored())
            self.give_to_other()
            self.assertRaises(exception.TakenOver, lease.run_with_lease, db.acquire_committed)
        self.assertEqual(("other", 1), self.stored())

    def test_lock_held_by_other_thread_raises_after_timeout(self):
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        refused = []

        def late():
            try:
                with self.lease():
                    refused.append("not refused")
            except exception.Unavailable as error:
                refused.append(str(error))

        with self.lease():
            thread = threading.Thread(target=late, daemon=True)
            thread.start()
            thread.join(TIMEOUT)
        self.assertIn(f"Volume {self.volume_id} is busy", refused[0])

    def test_lease_is_released_before_lock(self):
        idle = []
        real = db.release

        def give_back(lease):
            idle.append(volume_lock.is_free(self.path))
            real(lease)

        with mock.patch.object(db, "release", give_back), self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
        self.assertEqual([False], idle)


class FencingTest(_LeaseCase):
    """A process that may have been removed by other members."""

    def setUp(self):
        super().setUp()
        self.later = membership.boot_clock() + CONF.manager.member_timeout

    def asleep(self):
        return mock.patch.object(membership, "boot_clock", lambda: self.later)

    def test_fenced_process_changes_nothing_at_backend(self):
        with self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            base.check_fencing()
            self.assertFalse(lease.is_fenced())
            with self.asleep():
                self.assertRaises(exception.BackendError, base.check_fencing)
                self.assertTrue(lease.is_fenced())
        base.check_fencing()

    def test_fenced_process_acquires_no_lease(self):
        with self.asleep(), self.assertRaises(exception.Unavailable), self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
        self.assertEqual((None, 0), self.stored())

    def test_fenced_process_may_store_result_of_its_lease(self):
        # The row decides: no other process has taken it over so far.
        with self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            with self.asleep():
                lease.run_with_lease(db.acquire_committed)

    def test_lease_of_former_id_is_fenced(self):
        with self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            members.expire(self.ours.id)
            self.ours.heartbeat()
            self.assertTrue(lease.is_fenced())
            self.assertRaises(exception.BackendError, base.check_fencing)
        with self.lease() as lease:
            lease.run_with_lease(db.acquire_committed)
            self.assertFalse(lease.is_fenced())

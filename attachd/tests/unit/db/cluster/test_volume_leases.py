# SPDX-License-Identifier: Apache-2.0
"""Leases of volumes, as rows and transactions see them."""

import threading

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.attachments import attachment_store
from attachd.db.cluster import members, volume_leases
from attachd.db.cluster.volume_leases import VolumeLeaseToken
from attachd.db.engine import session
from attachd.db.volumes import volume_store
from attachd.states import Event
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.wait import TIMEOUT

_V = models.volumes


class LeasesTest(databases.DatabaseCase):
    """Two processes and one volume; repeated by functional/test_databases.py."""

    def setUp(self):
        super().setUp()
        for text in ("us", "them"):
            members.join(text, f"{text}:1")
        self.volume_id = db_rows.add_volume()["id"]
        self.ours = VolumeLeaseToken(self.volume_id, "us")
        self.theirs = VolumeLeaseToken(self.volume_id, "them")

    def stored(self):
        row = db_rows.get_volume(self.volume_id)
        return row["lease_holder"], row["lease_generation"]

    def add_volume(self, holder=None, **values):
        return db_rows.add_volume(lease_holder=holder, **values)["id"]

    def test_acquire_and_release_update_volume(self):
        volume_leases.acquire_committed(self.ours)
        self.assertEqual(("us", 1), self.stored())
        self.assertEqual(1, self.ours.generation)
        volume_leases.release(self.ours)
        self.assertEqual((None, 1), self.stored())
        self.assertIsNone(self.ours.generation)

    def test_is_held_after_takeover_returns_false(self):
        volume_leases.acquire_committed(self.ours)
        self.assertTrue(volume_leases.is_held(self.ours))
        volume_leases.release(VolumeLeaseToken(self.volume_id, "us"))
        self.assertFalse(volume_leases.is_held(self.ours))
        volume_leases.acquire_committed(VolumeLeaseToken(self.volume_id, "us"))
        self.assertFalse(volume_leases.is_held(self.ours), "it is another one by now")
        self.assertRaises(
            exception.VolumeNotFound, volume_leases.is_held, VolumeLeaseToken("none", "us", 1)
        )

    def test_is_held_waits_for_transaction_in_progress(self):
        volume_leases.acquire_committed(self.ours)
        order = []

        def ask():
            order.append(volume_leases.is_held(self.ours))

        with session.writer() as connection:
            volume_leases.release_with_result(connection, self.ours)
            asking = threading.Thread(target=ask)
            asking.start()
            asking.join(0.1)  # it cannot end sooner, slow or not
            order.append("stored")
        asking.join(TIMEOUT)
        self.assertEqual(["stored", False], order)

    def test_move_without_lease_while_held_is_refused(self):
        extending = self.add_volume("them", state="extending", new_size_gib=2)
        deleting = self.add_volume("them", state="deleting")
        for begin in (
            lambda: volume_store.transition(extending, Event.EXTENDED, {"new_size_gib": None}),
            lambda: volume_store.transition(deleting, Event.DELETE_FAILED),
            lambda: volume_store.reset(deleting, "available", None),
        ):
            with self.assertRaisesRegex(exception.InvalidTransition, "them:1 is working on it"):
                begin()
        members.expire("them")
        volume_store.transition(extending, Event.EXTENDED, {"new_size_gib": None})
        volume_store.reset(deleting, "available", None)
        self.assertEqual("available", db_rows.get_volume(deleting)["status"])

    def test_acquire_raises_generation(self):
        for generation in (1, 2, 3):
            volume_leases.acquire_committed(self.ours)
            self.assertEqual(("us", generation), self.stored())
            volume_leases.release(self.ours)
        volume_leases.acquire_committed(self.theirs)
        self.assertEqual(("them", 4), self.stored())

    def test_acquire_held_lease_changes_nothing(self):
        volume_leases.acquire_committed(self.ours)
        volume_leases.acquire_committed(self.ours)
        self.assertEqual(("us", 1), self.stored())

    def test_acquire_own_orphaned_lease_succeeds(self):
        volume_leases.acquire_committed(self.ours)
        again = VolumeLeaseToken(self.volume_id, "us")
        volume_leases.acquire_committed(again)
        self.assertEqual((("us", 2), 2), (self.stored(), again.generation))

    def test_acquire_and_release_keep_updated_at(self):
        before = db_rows.get_volume(self.volume_id)["updated_at"]
        volume_leases.acquire_committed(self.ours)
        volume_leases.release(self.ours)
        volume_leases.acquire_committed(self.ours)
        with session.writer() as connection:
            volume_leases.release_with_result(connection, self.ours)
        self.assertEqual(before, db_rows.get_volume(self.volume_id)["updated_at"])

    def test_acquire_lease_of_living_process_is_refused(self):
        volume_leases.acquire_committed(self.theirs)
        with self.assertRaises(volume_leases.VolumeLeaseHeld) as held:
            volume_leases.acquire_committed(self.ours)
        self.assertEqual("them:1", held.exception.holder)
        self.assertEqual((("them", 1), None), (self.stored(), self.ours.generation))
        volume_leases.release(self.ours)
        self.assertEqual(("them", 1), self.stored())

    def test_acquire_lease_of_dead_process_takes_over(self):
        volume_leases.acquire_committed(self.theirs)
        members.expire("them")
        volume_leases.acquire_committed(self.ours)
        self.assertEqual((("us", 2), 2), (self.stored(), self.ours.generation))

    def test_write_after_takeover_is_refused(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "reserved")["id"]
        attachment_store.transition(
            attachment_id, self.volume_id, Event.CONNECT, volume_lease=self.theirs
        )
        members.expire("them")
        volume_leases.acquire_committed(self.ours)
        before = db_rows.get_volume(self.volume_id), db_rows.get_attachment(attachment_id)
        attachment = before[1]
        late = (
            lambda: volume_leases.acquire_committed(self.theirs),
            lambda: attachment_store.transition(
                attachment_id, self.volume_id, Event.CONNECT_FAILED, volume_lease=self.theirs
            ),
            lambda: attachment_store.transition_without_volume(
                attachment, Event.GRANTED, {}, attachment["generation"], self.theirs
            ),
            lambda: volume_store.transition(
                self.volume_id, Event.DELETE, volume_lease=self.theirs
            ),
            self.end_theirs,
        )
        for number, write in enumerate(late):
            with self.subTest(number):
                self.assertRaises(exception.TakenOver, write)
        volume_leases.release(self.theirs)
        after = db_rows.get_volume(self.volume_id), db_rows.get_attachment(attachment_id)
        self.assertEqual(before, after)

    def test_write_after_acquire_by_other_thread_is_refused(self):
        volume_leases.acquire_committed(self.ours)
        volume_leases.acquire_committed(VolumeLeaseToken(self.volume_id, "us"))
        self.assertRaises(exception.TakenOver, volume_leases.acquire_committed, self.ours)
        with self.assertRaises(exception.TakenOver), session.writer() as connection:
            volume_leases.release_with_result(connection, self.ours)
        self.assertEqual(("us", 2), self.stored())

    def end_theirs(self):
        with session.writer() as connection:
            volume_leases.release_with_result(connection, self.theirs)

    def test_first_move_acquires_and_last_move_releases(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "reserved")["id"]
        transitioned = attachment_store.transition(
            attachment_id, self.volume_id, Event.CONNECT, volume_lease=self.ours
        ).attachment
        self.assertEqual((("us", 1), 1), (self.stored(), self.ours.generation))
        before = session.counters().writing_transactions
        attachment_store.transition_without_volume(
            transitioned, Event.GRANTED, {}, transitioned["generation"], self.ours
        )
        self.assertEqual(1, session.counters().writing_transactions - before)
        self.assertEqual(((None, 1), None), (self.stored(), self.ours.generation))
        attachment_store.transition(
            attachment_id, self.volume_id, Event.DISCONNECT, volume_lease=self.ours
        )
        self.assertEqual(("us", 2), self.stored())
        attachment_store.transition(
            attachment_id, self.volume_id, Event.REVOKED, volume_lease=self.ours, last=True
        )
        self.assertEqual(((None, 2), None), (self.stored(), self.ours.generation))

    def test_refused_move_acquires_nothing(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "reserved")["id"]
        with self.assertRaises(exception.InvalidTransition):
            attachment_store.transition(
                attachment_id, self.volume_id, Event.GRANTED, volume_lease=self.ours
            )
        self.assertEqual(((None, 0), None), (self.stored(), self.ours.generation))

    def test_failed_last_move_keeps_lease(self):
        attachment = db_rows.add_attachment(self.volume_id, "reserved")
        volume_leases.acquire_committed(self.ours)
        with self.assertRaises(exception.InvalidTransition):
            attachment_store.transition_without_volume(attachment, Event.GRANTED, {}, 0, self.ours)
        self.assertEqual((("us", 1), 1), (self.stored(), self.ours.generation))

    def test_acquire_for_deleted_volume_raises_not_found(self):
        gone = VolumeLeaseToken("gone", "us")
        self.assertRaises(exception.VolumeNotFound, volume_leases.acquire_committed, gone)
        volume_leases.release(gone)

    def test_leases_of_volumes_are_independent(self):
        other = self.add_volume()
        volume_leases.acquire_committed(self.theirs)
        volume_leases.acquire_committed(VolumeLeaseToken(other, "us"))
        volume_leases.release(VolumeLeaseToken(other, "them"))
        volume_leases.release(VolumeLeaseToken(other, "us"))
        self.assertEqual(("them", 1), self.stored())

    def test_is_free_and_is_orphaned_match_by_holder(self):
        unleased, ours = self.volume_id, self.add_volume("us")
        self.add_volume("them")
        dead = self.add_volume("dead")
        self.assertEqual({unleased, ours, dead}, self.matching(volume_leases.is_free("us")))
        self.assertEqual({dead}, self.matching(volume_leases.has_dead_holder()))
        members.expire("them")
        members.expire("us")
        self.assertEqual(3, len(self.matching(volume_leases.has_dead_holder())))

    def matching(self, where):
        with session.reader() as connection:
            return {row.id for row in connection.execute(sa.select(_V.c.id).where(where))}

    def test_list_orphaned_returns_own_and_dead_leases_of_backend(self):
        ours, dead = self.add_volume("us"), self.add_volume("dead")
        for holder in ("us", "dead"):
            self.add_volume(holder, host="here@other#pool")
        for holder in ("them", None):
            self.add_volume(holder)
        self.assertCountEqual([ours, dead], volume_leases.list_orphaned("here@fake", "us"))

    def test_acquire_concurrently_succeeds_once(self):
        names = [f"process-{number}" for number in range(8)]
        for name in names:
            members.join(name, name)
        wanted = [VolumeLeaseToken(self.volume_id, name) for name in names]
        calls = [
            lambda volume_lease=volume_lease: volume_leases.acquire_committed(volume_lease)
            for volume_lease in wanted
        ]
        answers = concurrency.run_at_once(*calls)
        lost = [answer for answer in answers if isinstance(answer, volume_leases.VolumeLeaseHeld)]
        self.assertEqual((7, 1), (len(lost), answers.count(None)), answers)
        (winner,) = (
            volume_lease for volume_lease in wanted if volume_lease.generation is not None
        )
        self.assertEqual((winner.holder, 1), self.stored())

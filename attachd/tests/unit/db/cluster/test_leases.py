# SPDX-License-Identifier: Apache-2.0
"""The right to work on a volume, as rows and transactions see it."""

import threading
import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.attachments import store as attachments
from attachd.db.cluster import leases, members
from attachd.db.cluster.leases import Lease
from attachd.db.engine import session
from attachd.db.volumes import store as volumes
from attachd.states import Event
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.wait import TIMEOUT

_V = models.volumes


class LeasesTest(unittest.TestCase):
    """Two processes and one volume; repeated by functional/test_databases.py."""

    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)
        for each in ("us", "them"):
            members.join(each, f"{each}:1")
        self.volume_id = db_rows.add_volume()["id"]
        self.ours = Lease(self.volume_id, "us")
        self.theirs = Lease(self.volume_id, "them")

    def stored(self):
        row = db_rows.get_volume(self.volume_id)
        return row["lease_holder"], row["lease_generation"]

    def add_volume(self, holder=None, **values):
        return db_rows.add_volume(lease_holder=holder, **values)["id"]

    def test_it_is_taken_and_given_back(self):
        leases.acquire_committed(self.ours)
        self.assertEqual(("us", 1), self.stored())
        self.assertEqual(1, self.ours.generation)
        leases.release(self.ours)
        self.assertEqual((None, 1), self.stored())
        self.assertIsNone(self.ours.generation)

    def test_whoever_asks_learns_whose_it_is_by_now(self):
        leases.acquire_committed(self.ours)
        self.assertTrue(leases.is_held(self.ours))
        leases.release(Lease(self.volume_id, "us"))
        self.assertFalse(leases.is_held(self.ours))
        leases.acquire_committed(Lease(self.volume_id, "us"))
        self.assertFalse(leases.is_held(self.ours), "it is another one by now")
        self.assertRaises(exception.VolumeNotFound, leases.is_held, Lease("none", "us", 1))

    def test_a_change_whose_commit_is_under_way_is_waited_for(self):
        leases.acquire_committed(self.ours)
        order = []

        def ask():
            order.append(leases.is_held(self.ours))

        with session.writer() as connection:
            leases.release_with_result(connection, self.ours)
            asking = threading.Thread(target=ask)
            asking.start()
            asking.join(0.1)  # it cannot end sooner, slow or not
            order.append("stored")
        asking.join(TIMEOUT)
        self.assertEqual(["stored", False], order)

    def test_nobody_says_how_work_ended_that_a_living_process_does(self):
        extending = self.add_volume("them", state="extending", new_size_gib=2)
        deleting = self.add_volume("them", state="deleting")
        for begin in (
            lambda: volumes.move(extending, Event.EXTENDED, {"new_size_gib": None}),
            lambda: volumes.move(deleting, Event.DELETE_FAILED),
            lambda: volumes.reset(deleting, "available", None),
        ):
            with self.assertRaisesRegex(exception.InvalidTransition, "them:1 is working on it"):
                begin()
        members.expire("them")
        volumes.move(extending, Event.EXTENDED, {"new_size_gib": None})
        volumes.reset(deleting, "available", None)
        self.assertEqual("available", db_rows.get_volume(deleting)["status"])

    def test_each_time_it_is_taken_its_generation_is_higher(self):
        for generation in (1, 2, 3):
            leases.acquire_committed(self.ours)
            self.assertEqual(("us", generation), self.stored())
            leases.release(self.ours)
        leases.acquire_committed(self.theirs)
        self.assertEqual(("them", 4), self.stored())

    def test_taking_what_one_has_changes_nothing(self):
        leases.acquire_committed(self.ours)
        leases.acquire_committed(self.ours)
        self.assertEqual(("us", 1), self.stored())

    def test_what_this_process_had_left_over_is_taken_again(self):
        leases.acquire_committed(self.ours)
        again = Lease(self.volume_id, "us")
        leases.acquire_committed(again)
        self.assertEqual((("us", 2), 2), (self.stored(), again.generation))

    def test_users_do_not_see_that_it_changed_hands(self):
        before = db_rows.get_volume(self.volume_id)["updated_at"]
        leases.acquire_committed(self.ours)
        leases.release(self.ours)
        leases.acquire_committed(self.ours)
        with session.writer() as connection:
            leases.release_with_result(connection, self.ours)
        self.assertEqual(before, db_rows.get_volume(self.volume_id)["updated_at"])

    def test_what_a_living_one_has_is_its_own(self):
        leases.acquire_committed(self.theirs)
        with self.assertRaises(leases.LeaseHeld) as held:
            leases.acquire_committed(self.ours)
        self.assertEqual("them:1", held.exception.holder)
        self.assertEqual((("them", 1), None), (self.stored(), self.ours.generation))
        leases.release(self.ours)
        self.assertEqual(("them", 1), self.stored())

    def test_what_a_dead_one_had_is_taken_over(self):
        leases.acquire_committed(self.theirs)
        members.expire("them")
        leases.acquire_committed(self.ours)
        self.assertEqual((("us", 2), 2), (self.stored(), self.ours.generation))

    def test_who_was_taken_over_can_write_nothing_any_more(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "reserved")["id"]
        attachments.move(attachment_id, self.volume_id, Event.CONNECT, lease=self.theirs)
        members.expire("them")
        leases.acquire_committed(self.ours)
        before = db_rows.get_volume(self.volume_id), db_rows.get_attachment(attachment_id)
        mine = before[1]
        late = (
            lambda: leases.acquire_committed(self.theirs),
            lambda: attachments.move(
                attachment_id, self.volume_id, Event.CONNECT_FAILED, lease=self.theirs
            ),
            lambda: attachments.move_without_volume(
                mine, Event.GRANTED, {}, mine["generation"], self.theirs
            ),
            lambda: volumes.move(self.volume_id, Event.DELETE, lease=self.theirs),
            self.end_theirs,
        )
        for number, write in enumerate(late):
            with self.subTest(number):
                self.assertRaises(exception.TakenOver, write)
        leases.release(self.theirs)
        after = db_rows.get_volume(self.volume_id), db_rows.get_attachment(attachment_id)
        self.assertEqual(before, after)

    def test_nor_can_a_thread_whose_own_process_has_taken_it_anew(self):
        leases.acquire_committed(self.ours)
        leases.acquire_committed(Lease(self.volume_id, "us"))
        self.assertRaises(exception.TakenOver, leases.acquire_committed, self.ours)
        with self.assertRaises(exception.TakenOver), session.writer() as connection:
            leases.release_with_result(connection, self.ours)
        self.assertEqual(("us", 2), self.stored())

    def end_theirs(self):
        with session.writer() as connection:
            leases.release_with_result(connection, self.theirs)

    def test_it_is_taken_by_the_first_move_and_given_back_by_the_last(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "reserved")["id"]
        moved = attachments.move(
            attachment_id, self.volume_id, Event.CONNECT, lease=self.ours
        ).attachment
        self.assertEqual((("us", 1), 1), (self.stored(), self.ours.generation))
        before = session.counters().writing_transactions
        attachments.move_without_volume(moved, Event.GRANTED, {}, moved["generation"], self.ours)
        self.assertEqual(1, session.counters().writing_transactions - before)
        self.assertEqual(((None, 1), None), (self.stored(), self.ours.generation))
        attachments.move(attachment_id, self.volume_id, Event.DISCONNECT, lease=self.ours)
        self.assertEqual(("us", 2), self.stored())
        attachments.move(attachment_id, self.volume_id, Event.REVOKED, lease=self.ours, last=True)
        self.assertEqual(((None, 2), None), (self.stored(), self.ours.generation))

    def test_a_move_that_is_forbidden_takes_nothing(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "reserved")["id"]
        with self.assertRaises(exception.InvalidTransition):
            attachments.move(attachment_id, self.volume_id, Event.GRANTED, lease=self.ours)
        self.assertEqual(((None, 0), None), (self.stored(), self.ours.generation))

    def test_an_end_that_could_not_be_written_down_keeps_it(self):
        mine = db_rows.add_attachment(self.volume_id, "reserved")
        leases.acquire_committed(self.ours)
        with self.assertRaises(exception.InvalidTransition):
            attachments.move_without_volume(mine, Event.GRANTED, {}, 0, self.ours)
        self.assertEqual((("us", 1), 1), (self.stored(), self.ours.generation))

    def test_a_volume_that_is_gone_cannot_be_had(self):
        gone = Lease("gone", "us")
        self.assertRaises(exception.VolumeNotFound, leases.acquire_committed, gone)
        leases.release(gone)

    def test_one_lease_has_nothing_to_do_with_another(self):
        other = self.add_volume()
        leases.acquire_committed(self.theirs)
        leases.acquire_committed(Lease(other, "us"))
        leases.release(Lease(other, "them"))
        leases.release(Lease(other, "us"))
        self.assertEqual(("them", 1), self.stored())

    def test_which_are_free_and_which_a_dead_one_has(self):
        nobodys, ours = self.volume_id, self.add_volume("us")
        self.add_volume("them")
        dead = self.add_volume("dead")
        self.assertEqual({nobodys, ours, dead}, self.matching(leases.is_free("us")))
        self.assertEqual({dead}, self.matching(leases.has_dead_holder()))
        members.expire("them")
        members.expire("us")
        self.assertEqual(3, len(self.matching(leases.has_dead_holder())))

    def matching(self, where):
        with session.reader() as connection:
            return {row.id for row in connection.execute(sa.select(_V.c.id).where(where))}

    def test_leftovers_are_ones_own_and_those_of_the_dead_at_the_backend(self):
        ours, dead = self.add_volume("us"), self.add_volume("dead")
        for holder in ("us", "dead"):
            self.add_volume(holder, host="here@other#pool")
        for holder in ("them", None):
            self.add_volume(holder)
        self.assertCountEqual([ours, dead], leases.list_orphaned("here@fake", "us"))

    def test_one_of_many_gets_what_is_free(self):
        names = [f"process-{number}" for number in range(8)]
        for each in names:
            members.join(each, each)
        wanted = [Lease(self.volume_id, each) for each in names]
        calls = [lambda lease=lease: leases.acquire_committed(lease) for lease in wanted]
        answers = concurrency.run_at_once(*calls)
        lost = [each for each in answers if isinstance(each, leases.LeaseHeld)]
        self.assertEqual((7, 1), (len(lost), answers.count(None)), answers)
        (winner,) = (lease for lease in wanted if lease.generation is not None)
        self.assertEqual((winner.holder, 1), self.stored())

# SPDX-License-Identifier: Apache-2.0
"""Keys of requests: one resource each, one answer each, whoever comes at the same time."""

import unittest

from attachd import exception
from attachd.db import idempotency_keys, models
from attachd.db.attachments import store as attachments
from attachd.db.engine import session
from attachd.db.volumes import store as volumes
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows

DIGEST, OTHER, PRINT = "d" * 64, "e" * 64, "f" * 64


class Case(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def claim(self, digest=DIGEST, kept_for=60):
        return idempotency_keys.claim(digest, PRINT, kept_for)

    def right(self, digest=DIGEST):
        return idempotency_keys.IdempotencyClaim(digest, self.claim(digest).resource_id)

    def make(self, right):
        with session.writer() as connection:
            right.note(connection)


class IdempotencyKeysTest(Case):
    def test_a_key_has_one_resource(self):
        first, second = self.claim(), self.claim()
        self.assertEqual((PRINT, False, None, None, False), (first[0], *first[2:]))
        self.assertEqual(first._replace(repeated=True), second)
        self.assertNotEqual(first.resource_id, self.claim(OTHER).resource_id)

    def test_those_who_come_together_get_the_same_resource(self):
        found = concurrency.run_at_once(*[self.claim] * 6)
        self.assertEqual(1, len({each.resource_id for each in found}))
        self.assertEqual(1, [each.repeated for each in found].count(False))

    def test_one_run_makes_it(self):
        right = self.right()
        outcomes = concurrency.run_at_once(*[lambda: self.make(right)] * 6)
        self.assertEqual(1, outcomes.count(None))
        raised = [each for each in outcomes if each is not None]
        self.assertEqual({idempotency_keys.AlreadyMade}, {type(each) for each in raised})
        self.assertTrue(self.claim().made)

    def test_what_was_rolled_back_was_not_made(self):
        right = self.right()
        with self.assertRaises(ZeroDivisionError), session.writer() as connection:
            right.note(connection)
            raise ZeroDivisionError
        self.assertFalse(self.claim().made)
        self.make(right)

    def test_what_was_released_can_be_made_anew(self):
        right = self.right()
        with self.assertRaises(idempotency_keys.AlreadyMade):
            right.release()
        self.make(right)
        right.release()
        self.assertFalse(self.claim().made)
        self.make(right)

    def test_the_first_answer_is_the_answer(self):
        self.right()
        self.assertTrue(idempotency_keys.finish(DIGEST, 200, {"a": [1, None]}))
        self.assertFalse(idempotency_keys.finish(DIGEST, 202, {}))
        self.assertFalse(idempotency_keys.refuse(DIGEST, 400, {}))
        self.assertEqual((200, {"a": [1, None]}), self.claim()[3:5])

    def test_what_was_refused_is_never_made(self):
        right = self.right()
        self.assertTrue(idempotency_keys.refuse(DIGEST, 409, "no"))
        with self.assertRaises(idempotency_keys.AlreadyMade):
            self.make(right)
        self.assertEqual((False, 409, "no", True), self.claim()[2:])

    def test_what_was_made_is_never_refused(self):
        right = self.right()
        self.make(right)
        self.assertFalse(idempotency_keys.refuse(DIGEST, 409, "no"))
        self.assertIsNone(self.claim().status)

    def test_a_refusal_and_the_making_exclude_each_other(self):
        for number in range(10):
            digest = f"{number:064}"
            right = self.right(digest)
            made, refused = concurrency.run_at_once(
                lambda right=right: self.make(right),
                lambda digest=digest: idempotency_keys.refuse(digest, 400, None),
            )
            self.assertNotEqual(made is None, refused)

    def test_an_old_key_is_as_good_as_new(self):
        old = self.claim(kept_for=-1)
        self.assertIsNone(idempotency_keys.get(DIGEST))
        new = self.claim()
        self.assertFalse(new.repeated)
        self.assertNotEqual(old.resource_id, new.resource_id)

    def test_old_keys_are_reaped(self):
        self.claim(kept_for=-1)
        self.claim(OTHER)
        self.assertEqual((1, 0), (idempotency_keys.purge(), idempotency_keys.purge()))
        self.assertIsNotNone(idempotency_keys.get(OTHER))

    def test_the_table_holds_no_key(self):
        names = {column.name for column in models.idempotency_keys.c}
        self.assertNotIn("key", names)


class MakeTest(Case):
    """The transactions that make resources."""

    def test_whoever_has_a_key_gets_what_is_of_the_key(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        wanted = {
            "project_id": db_rows.PROJECT,
            "user_id": "u",
            "instance_uuid": "server",
            "connector": db_rows.CONNECTOR,
        }
        attachments.reserve(volume, wanted)
        for name in ("k1", "k2"):
            known = idempotency_keys.claim(name, "f", 60)
            note = idempotency_keys.IdempotencyClaim(name, known.resource_id).note
            keyed = {**wanted, "id": known.resource_id}
            self.assertEqual(
                known.resource_id, attachments.reserve(volume, keyed, first=note)["id"]
            )
            with self.assertRaises(idempotency_keys.AlreadyMade):
                attachments.reserve(volume, keyed, first=note)
        self.assertEqual(3, len(db_rows.list_attachments(volume)))

    def test_a_reservation_that_is_refused_notes_nothing(self):
        volume = db_rows.add_volume(state="error")["id"]
        known = idempotency_keys.claim("k", "f", 60)
        note = idempotency_keys.IdempotencyClaim("k", known.resource_id).note
        keyed = {"project_id": db_rows.PROJECT, "id": known.resource_id}
        with self.assertRaises(exception.VolumeNotAvailable):
            attachments.reserve(volume, keyed, first=note)
        self.assertFalse(idempotency_keys.claim("k", "f", 60).made)

    def test_a_volume_is_made_once(self):
        known = idempotency_keys.claim("k", "f", 60)
        note = idempotency_keys.IdempotencyClaim("k", known.resource_id).note
        wanted = {
            "id": known.resource_id,
            "project_id": db_rows.PROJECT,
            "size_gib": 1,
            "volume_type_id": None,
            "source_volid": None,
            "host": "here@fake#pool",
        }
        made = concurrency.run_at_once(*[lambda: volumes.create(wanted, {}, note)] * 4)
        self.assertEqual(3, [type(each) for each in made].count(idempotency_keys.AlreadyMade))
        self.assertEqual([known.resource_id], [row["id"] for row in db_rows.list_volumes()])

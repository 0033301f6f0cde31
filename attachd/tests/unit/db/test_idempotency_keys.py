# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys: one resource and one answer each, also for concurrent requests."""

from attachd import exception
from attachd.db import idempotency_keys, models
from attachd.db.attachments import attachment_store
from attachd.db.engine import session
from attachd.db.volumes import volume_store
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows

DIGEST, OTHER, PRINT = "d" * 64, "e" * 64, "f" * 64


class Case(databases.DatabaseCase):
    def claim(self, digest=DIGEST, kept_for=60):
        return idempotency_keys.claim(digest, PRINT, kept_for)

    def right(self, digest=DIGEST):
        return idempotency_keys.IdempotencyClaim(digest, self.claim(digest).resource_id)

    def make(self, right):
        with session.writer() as connection:
            right.note(connection)


class IdempotencyKeysTest(Case):
    def test_claim_returns_same_resource_for_key(self):
        first, second = self.claim(), self.claim()
        self.assertEqual((PRINT, False, None, None, False), (first[0], *first[2:]))
        self.assertEqual(first._replace(repeated=True), second)
        self.assertNotEqual(first.resource_id, self.claim(OTHER).resource_id)

    def test_claim_concurrently_returns_same_resource(self):
        found = concurrency.run_at_once(*[self.claim] * 6)
        self.assertEqual(1, len({item.resource_id for item in found}))
        self.assertEqual(1, [item.repeated for item in found].count(False))

    def test_note_succeeds_in_one_run(self):
        right = self.right()
        outcomes = concurrency.run_at_once(*[lambda: self.make(right)] * 6)
        self.assertEqual(1, outcomes.count(None))
        raised = [outcome for outcome in outcomes if outcome is not None]
        self.assertEqual({idempotency_keys.AlreadyMade}, {type(item) for item in raised})
        self.assertTrue(self.claim().made)

    def test_note_is_undone_by_rollback(self):
        right = self.right()
        with self.assertRaises(ZeroDivisionError), session.writer() as connection:
            right.note(connection)
            raise ZeroDivisionError
        self.assertFalse(self.claim().made)
        self.make(right)

    def test_release_allows_new_creation(self):
        right = self.right()
        with self.assertRaises(idempotency_keys.AlreadyMade):
            right.release()
        self.make(right)
        right.release()
        self.assertFalse(self.claim().made)
        self.make(right)

    def test_finish_keeps_first_answer(self):
        self.right()
        self.assertTrue(idempotency_keys.finish(DIGEST, 200, {"a": [1, None]}))
        self.assertFalse(idempotency_keys.finish(DIGEST, 202, {}))
        self.assertFalse(idempotency_keys.refuse(DIGEST, 400, {}))
        self.assertEqual((200, {"a": [1, None]}), self.claim()[3:5])

    def test_note_after_refusal_is_refused(self):
        right = self.right()
        self.assertTrue(idempotency_keys.refuse(DIGEST, 409, "no"))
        with self.assertRaises(idempotency_keys.AlreadyMade):
            self.make(right)
        self.assertEqual((False, 409, "no", True), self.claim()[2:])

    def test_refuse_after_note_is_refused(self):
        right = self.right()
        self.make(right)
        self.assertFalse(idempotency_keys.refuse(DIGEST, 409, "no"))
        self.assertIsNone(self.claim().status)

    def test_refuse_and_note_concurrently_exclude_each_other(self):
        for number in range(10):
            digest = f"{number:064}"
            right = self.right(digest)
            made, refused = concurrency.run_at_once(
                lambda right=right: self.make(right),
                lambda digest=digest: idempotency_keys.refuse(digest, 400, None),
            )
            self.assertNotEqual(made is None, refused)

    def test_expired_key_is_reusable(self):
        old = self.claim(kept_for=-1)
        self.assertIsNone(idempotency_keys.get(DIGEST))
        new = self.claim()
        self.assertFalse(new.repeated)
        self.assertNotEqual(old.resource_id, new.resource_id)

    def test_purge_removes_expired_keys(self):
        self.claim(kept_for=-1)
        self.claim(OTHER)
        self.assertEqual((1, 0), (idempotency_keys.purge(9), idempotency_keys.purge(9)))
        self.assertIsNotNone(idempotency_keys.get(OTHER))

    def test_table_contains_no_key(self):
        names = {column.name for column in models.idempotency_keys.c}
        self.assertNotIn("key", names)


class CreateTest(Case):
    """The transactions that make resources."""

    def test_create_with_key_uses_its_resource_id(self):
        volume = db_rows.add_volume(multiattach=True)["id"]
        wanted = {
            "project_id": db_rows.PROJECT,
            "user_id": "u",
            "instance_uuid": "server",
            "connector": db_rows.CONNECTOR,
        }
        attachment_store.reserve(volume, wanted)
        for name in ("k1", "k2"):
            known = idempotency_keys.claim(name, "f", 60)
            note = idempotency_keys.IdempotencyClaim(name, known.resource_id).note
            keyed = {**wanted, "id": known.resource_id}
            self.assertEqual(
                known.resource_id, attachment_store.reserve(volume, keyed, first=note)["id"]
            )
            with self.assertRaises(idempotency_keys.AlreadyMade):
                attachment_store.reserve(volume, keyed, first=note)
        self.assertEqual(3, len(db_rows.list_attachments(volume)))

    def test_refused_reservation_notes_nothing(self):
        volume = db_rows.add_volume(state="error")["id"]
        known = idempotency_keys.claim("k", "f", 60)
        note = idempotency_keys.IdempotencyClaim("k", known.resource_id).note
        keyed = {"project_id": db_rows.PROJECT, "id": known.resource_id}
        with self.assertRaises(exception.VolumeNotAvailable):
            attachment_store.reserve(volume, keyed, first=note)
        self.assertFalse(idempotency_keys.claim("k", "f", 60).made)

    def test_create_volume_with_key_twice_is_refused(self):
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
        made = concurrency.run_at_once(*[lambda: volume_store.create(wanted, {}, note)] * 4)
        self.assertEqual(3, [type(item) for item in made].count(idempotency_keys.AlreadyMade))
        self.assertEqual([known.resource_id], [row["id"] for row in db_rows.list_volumes()])
